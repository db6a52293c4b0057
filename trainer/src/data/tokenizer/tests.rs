use super::*;
use serde_json::{Map, json};

/// The characters that byte-level tokenizers write bytes as, in the order of bytes.
fn byte_characters() -> Vec<char> {
    let printable = |b: u32| (0x21..0x7F).contains(&b) || (0xA1..0xAD).contains(&b) || (0xAE..0x100).contains(&b);
    let mut others = (0x100..).filter_map(char::from_u32);
    (0..256).map(|b| if printable(b) { char::from_u32(b).unwrap() } else { others.next().unwrap() }).collect()
}

/// A byte-level tokenizer: ids 0 to 2 are special, 3 to 258 bytes, then merged pairs.
pub(crate) fn tiny(pre_tokenizer: Value) -> Value {
    let mut vocab = Map::new();
    let special = ["<pad>", "<bos>", "<eos>"];
    let bytes = byte_characters().into_iter().map(String::from);
    for token in special.map(String::from).into_iter().chain(bytes) {
        vocab.insert(token, json!(vocab.len()));
    }
    let merges = [
        ("\u{120}", "t"),
        ("h", "e"),
        ("\u{120}t", "he"),
        ("i", "n"),
        ("\u{120}", "a"),
        ("\u{120}a", "n"),
        ("\u{120}an", "d"),
        ("\u{10a}", "\u{10a}"),
        ("\u{120}", "\u{120}"),
        ("o", "n"),
        ("1", "2"),
        ("\u{120}\u{120}", "\u{120}\u{120}"),
        ("s", "t"),
        ("e", "r"),
        ("'", "s"),
        (".", "\u{10a}"),
        ("\u{10d}", "\u{10a}"),
    ];
    for (a, b) in merges {
        vocab.insert(format!("{a}{b}"), json!(vocab.len()));
    }
    let added = special.iter().enumerate().map(|(id, content)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocab, "merges": merges.map(|(a, b)| [a, b])}
    })
}

/// The byte-level step, which splits as GPT-2 does if `use_regex`.
pub(crate) fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}

pub(crate) fn parse(json: &Value) -> Tokenizer {
    Tokenizer::parse(json.to_string().as_bytes(), Path::new("tokenizer.json")).unwrap()
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

#[test]
fn bytes_are_ids() {
    let t = Tokenizer::bytes();
    assert_eq!(t.encode("a\u{e9}").unwrap(), [97, 0xC3, 0xA9]);
    assert_eq!(t.decode(&[97, 0xC3, 0xA9, 300]).unwrap(), "a\u{e9}");
    assert_eq!(t.decode(&[0xC3]).unwrap(), "\u{FFFD}");
    assert_eq!((t.eos(), t.id_end(), t.digest()), (None, 256, 0));
    // An id that is a byte does not close documents.
    assert_eq!(t.or_eos(&[2]).eos(), None);
    assert_eq!(Tokenizer::bytes().or_eos(&[257, 2]).eos(), Some(257));
}

#[test]
fn ids_are_those_without_special_tokens_and_text_comes_back() {
    let mut json = tiny(byte_level(true));
    let bos = json!([{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]);
    json["post_processor"] = json!({"type": "TemplateProcessing", "single": bos, "pair": bos,
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [1], "tokens": ["<bos>"]}}});
    let t = parse(&json);
    let text = "in the and\n\n<eos> the '\u{e9}'";
    let ids = t.encode(text).unwrap();
    let encoding = tokenizers::Tokenizer::from_bytes(json.to_string()).unwrap().encode(text, false).unwrap();
    assert_eq!(ids, encoding.get_ids());
    assert!(!ids.contains(&1) && ids.contains(&2), "{ids:?}");
    assert_eq!(t.decode(&ids).unwrap(), text.replace("<eos>", ""));
    let places = t.encode_places(text).unwrap();
    assert!(places.iter().map(|p| p.id).eq(ids));
    assert_eq!(places.iter().find(|p| p.id == 2).unwrap().offset, text.find("<eos>").unwrap());
}

#[test]
fn truncation_and_padding_are_off() {
    let mut json = tiny(byte_level(true));
    let plain = parse(&json);
    json["truncation"] = json!({"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0});
    json["padding"] = json!({"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"});
    let text = "one two three four five";
    assert_eq!(parse(&json).encode(text).unwrap(), plain.encode(text).unwrap());
}

#[test]
fn end_of_sequence_comes_from_the_tokenizers_files_first() {
    let json = tiny(byte_level(true)).to_string();
    let load = |config: Option<&str>| {
        let files = [("tokenizer.json", json.as_str()), ("tokenizer_config.json", config.unwrap_or("{}"))];
        Tokenizer::load(folder(&files[..1 + usize::from(config.is_some())]).path()).unwrap().unwrap()
    };
    assert_eq!(load(Some(r#"{"eos_token": "<eos>"}"#)).or_eos(&[1]).eos(), Some(2));
    assert_eq!(load(Some(r#"{"eos_token": {"content": "<pad>"}}"#)).or_eos(&[1]).eos(), Some(0));
    assert_eq!(load(Some(r#"{"eos_token": null}"#)).or_eos(&[1, 2]).eos(), Some(1));
    assert_eq!(load(Some(r#"{"eos_token": "<none>"}"#)).or_eos(&[1]).eos(), Some(1));
    assert_eq!(load(None).or_eos(&[]).eos(), None);
    assert_eq!(load(None).id_end(), 276);
    assert_ne!(load(None).digest(), 0);
}

#[test]
fn folders_without_tokenizer_files_and_with_others() {
    assert!(Tokenizer::load(folder(&[("config.json", "{}")]).path()).unwrap().is_none());
    let error = Tokenizer::load(folder(&[("tokenizer.model", "x")]).path()).err().unwrap();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("only tokenizer.model"), "{error}");
    for bad in ["", "{}", "[1]", "{\"model\": 3}"] {
        let error = Tokenizer::load(folder(&[("tokenizer.json", bad)]).path()).err().unwrap();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("tokenizer.json"), "{error}");
    }
}
