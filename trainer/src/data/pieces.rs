//! Where a text may be cut so that encoding the parts gives the ids of encoding it whole.
//!
//! Encoding takes memory of some two hundred times the text, so documents are encoded in parts where that is provably
//! the same. The cut is *between a letter and the space or line feed behind it* (a word end). Why the ids agree there,
//! for the tokenizers that [`cuts_at_word_ends`] lets through:
//!
//! 1. Added tokens are found first. None of them holds white space and none takes in, or looks at, what stands beside
//!    it, so none lies across a word end or depends on what is beyond it.
//! 2. The normalizer is none or NFC. A space or line feed neither composes nor reorders with what stands before it, so
//!    NFC of the whole is NFC of the parts.
//! 3. Splitting into words is by one of three known patterns. In each of them a match that holds a letter ends with
//!    a letter, so no match goes on from a letter to white space: a match ends at the word end. No
//!    pattern looks back, so matching goes on behind it as from the start of a text; the only look ahead
//!    (`\s+(?!\S)`) is in a match that begins behind the cut, or that ended before the word. Splitting off
//!    digits first cuts within words only between a digit and something else, the same on both sides.
//! 4. The model (BPE without dropout) works on each word alone.
//!
//! For every other tokenizer a document is encoded whole.

use serde_json::Value;

/// GPT-2's split (also built into the byte-level step), that of Llama 3, and that of Qwen 2 and 3.
const PATTERNS: [&str; 3] = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// Whether the tokenizer that `json` (a `tokenizer.json`) describes gives the same ids for a text cut at word ends.
pub fn cuts_at_word_ends(json: &Value) -> bool {
    added_tokens_stay_within_words(&json["added_tokens"])
        && normalizer_is_local(&json["normalizer"])
        && splits_at_word_ends(&json["pre_tokenizer"])
        && json["model"]["type"] == "BPE"
        && json["model"]["dropout"].as_f64().unwrap_or(0.0) == 0.0
}

/// The last word end in `text`: the place behind a letter that a space or line feed follows.
pub fn last_word_end(text: &str) -> Option<usize> {
    let behind_letter = |at: &usize| text[..*at].chars().next_back().is_some_and(is_letter);
    text.rmatch_indices([' ', '\n']).map(|(at, _)| at).find(behind_letter)
}

/// Blocks that hold nothing but letters (`\p{L}`): Latin, Cyrillic, Hiragana, common Chinese, Hangul. Other letters
/// exist; a cut is only never looked for behind them.
fn is_letter(c: char) -> bool {
    matches!(c, 'A'..='Z' | 'a'..='z' | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{24F}'
        | '\u{400}'..='\u{481}' | '\u{48A}'..='\u{52F}' | '\u{3041}'..='\u{3096}' | '\u{4E00}'..='\u{9FD5}'
        | '\u{AC00}'..='\u{D7A3}')
}

fn added_tokens_stay_within_words(tokens: &Value) -> bool {
    let off = |token: &Value, field: &str| token[field].as_bool() == Some(false);
    let within = |token: &Value| {
        token["content"].as_str().is_some_and(|c| !c.contains(char::is_whitespace))
            && ["lstrip", "rstrip", "single_word"].iter().all(|field| off(token, field))
    };
    tokens.is_null() || tokens.as_array().is_some_and(|tokens| tokens.iter().all(within))
}

fn normalizer_is_local(normalizer: &Value) -> bool {
    match normalizer["type"].as_str() {
        None => normalizer.is_null(),
        Some("NFC") => true,
        Some("Sequence") => normalizer["normalizers"].as_array().is_some_and(|n| n.iter().all(normalizer_is_local)),
        Some(_) => false,
    }
}

fn splits_at_word_ends(pre_tokenizer: &Value) -> bool {
    let single = std::slice::from_ref(pre_tokenizer);
    let steps = match pre_tokenizer["type"].as_str() {
        Some("Sequence") => pre_tokenizer["pretokenizers"].as_array().map_or(&[][..], Vec::as_slice),
        _ => single,
    };
    // Byte-level rewrites white space, so nothing may come behind it.
    let Some((last, before)) = steps.split_last() else { return false };
    let splits = before.iter().any(is_known_split) || is_byte_level(last) && last["use_regex"] != false;
    splits && is_byte_level(last) && before.iter().all(|step| is_known_split(step) || step["type"] == "Digits")
}

/// `use_regex` is on if left out.
fn is_byte_level(step: &Value) -> bool {
    step["type"] == "ByteLevel" && step["add_prefix_space"] == false
}

fn is_known_split(step: &Value) -> bool {
    step["type"] == "Split"
        && step["pattern"]["Regex"].as_str().is_some_and(|p| PATTERNS.contains(&p))
        && step["behavior"] == "Isolated"
        && step["invert"] == false
}

#[cfg(test)]
mod tests;
