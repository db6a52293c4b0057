use super::super::tokenizer::tests::{byte_level, parse, tiny};
use super::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::json;

fn split(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

fn sequence(steps: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": steps})
}

fn digits() -> Value {
    json!({"type": "Digits", "individual_digits": true})
}

fn cuttable() -> Vec<Value> {
    let mut all = vec![
        byte_level(true),
        sequence(&[digits(), byte_level(true)]),
        sequence(&[digits(), split(PATTERNS[1]), byte_level(false)]),
    ];
    all.extend(PATTERNS.iter().map(|p| sequence(&[split(p), byte_level(false)])));
    let mut tokenizers: Vec<Value> = all.into_iter().map(tiny).collect();
    let mut composed = tiny(byte_level(true));
    composed["normalizer"] = json!({"type": "NFC"});
    tokenizers.push(composed);
    tokenizers
}

/// Texts that try the rules: runs of white space, apostrophes, digits, marks, special tokens, several scripts.
fn text(rng: &mut ChaCha8Rng, parts: usize) -> String {
    const PARTS: [&str; 36] = [
        "the",
        "and",
        " ",
        " ",
        "  ",
        "   ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        "'s",
        "'S",
        "'",
        "'ll",
        "1",
        "12",
        "2024",
        ".",
        "...",
        ".\n",
        "\u{e9}",
        "e\u{301}",
        "\u{301}",
        "\u{A0}",
        "\u{2028}",
        "\u{6f22}\u{5b57}",
        "\u{304b}\u{306a}",
        "\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442}",
        "\u{d55c}",
        "<eos>",
        "<",
        "\u{1f600}",
        "x",
        "\u{0}",
        "-",
        "_",
    ];
    (0..parts).map(|_| PARTS[rng.next_u32() as usize % PARTS.len()]).collect()
}

/// Ids of the parts, cut at every word end, are the ids of the whole.
#[test]
fn cut_at_word_ends_the_ids_are_those_of_the_whole() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut cuts = 0;
    for json in cuttable() {
        assert!(cuts_at_word_ends(&json), "{}", json["pre_tokenizer"]);
        let tokenizer = parse(&json);
        for _ in 0..120 {
            let text = text(&mut rng, 60);
            let whole = tokenizer.encode(&text).unwrap();
            let mut rest = text.as_str();
            let mut parts = Vec::new();
            while let Some(cut) = tokenizer.last_cut(rest) {
                let (before, behind) = rest.split_at(cut);
                parts.push(behind);
                rest = before;
                cuts += 1;
            }
            parts.push(rest);
            let ids: Vec<u32> = parts.iter().rev().flat_map(|part| tokenizer.encode(part).unwrap()).collect();
            assert_eq!(ids, whole, "{text:?} with {}", json["pre_tokenizer"]);
        }
    }
    assert!(cuts > 2000, "{cuts} cuts");
}

#[test]
fn word_ends() {
    for (text, cut) in [
        ("", None),
        ("abc", None),
        ("abc def", Some(3)),
        ("ab cd\nef", Some(5)),
        ("a\r\nb. c1 \n", None),
        ("a\tb", None),
        ("\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442} \u{43c}\u{438}\u{440}\n", Some(19)),
        ("e\u{301} x", None),
        ("\u{6f22} \u{5b57}", Some(3)),
    ] {
        assert_eq!(last_word_end(text), cut, "{text:?}");
    }
}

/// What the argument does not cover is encoded whole.
#[test]
fn other_tokenizers_are_not_cut() {
    let good = tiny(byte_level(true));
    let with = |place: &str, value: Value| {
        let mut json = good.clone();
        *json.pointer_mut(place).unwrap() = value;
        json
    };
    let prefix = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    for json in [
        with("/normalizer", json!({"type": "Prepend", "prepend": "_"})),
        with("/normalizer", json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]})),
        with("/normalizer", json!({"type": "NFKC"})),
        with("/added_tokens/2/lstrip", json!(true)),
        with("/added_tokens/2/single_word", json!(true)),
        with("/added_tokens/2/content", json!("the end")),
        with("/pre_tokenizer", Value::Null),
        with("/pre_tokenizer", byte_level(false)),
        with("/pre_tokenizer", prefix),
        with(
            "/pre_tokenizer",
            json!({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true}),
        ),
        with("/pre_tokenizer", sequence(&[])),
        with("/pre_tokenizer", sequence(&[split(r"\w+ \w+"), byte_level(false)])),
        with("/pre_tokenizer", sequence(&[split(r"\w+ \w+"), byte_level(true)])),
        with("/pre_tokenizer", sequence(&[byte_level(true), split(PATTERNS[0])])),
        with("/pre_tokenizer", sequence(&[split(PATTERNS[0])])),
        with("/model/type", json!("Unigram")),
        with("/model/dropout", json!(0.1)),
    ] {
        assert!(!cuts_at_word_ends(&json), "{} {}", json["normalizer"], json["pre_tokenizer"]);
    }
}
