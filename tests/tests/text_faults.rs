//! Text files that are not what they seem (B05, text) and ids that the model does not have: refused with file and byte
//! offset, or read as documented.

use mt_tests::command::Place;
use mt_tests::small::{self, Small};

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
const RUN: &str = "train --model m --seq-len 16 --batch 2 --steps 2 --lr 1e-3 --warmup 0 --no-shuffle";

fn place() -> Place {
    let place = Place::new(MT);
    place.model("m", &Small::m0(3));
    place
}

#[test]
fn b05_a_bom_is_dropped_and_line_ends_are_kept() {
    let place = place();
    let text = small::text(5, 600);
    place.write("plain.txt", &text);
    place.write("bom.txt", [b"\xef\xbb\xbf", text.as_bytes()].concat());
    place.write("crlf.txt", text.replace('\n', "\r\n"));
    for name in ["plain", "bom", "crlf"] {
        place.ok(&format!("{RUN} --data {name}.txt --run {name}"));
    }
    assert_eq!(place.losses("plain"), place.losses("bom"));
    assert_ne!(place.losses("plain"), place.losses("crlf"), "CR is a byte like any other");
    assert!(text[..64].contains('\n'), "the first rows hold a line's end");
}

#[test]
fn b05_other_containers_are_refused_by_name() {
    let place = place();
    let text = small::text(5, 600);
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    place.write("utf16.txt", [b"\xff\xfe".as_slice(), &utf16].concat());
    place.refused(&format!("{RUN} --data utf16.txt --run r"), 2, &["utf16.txt", "UTF-16"]);
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    place.write("utf16be.txt", [b"\xfe\xff".as_slice(), &big].concat());
    place.refused(&format!("{RUN} --data utf16be.txt --run r"), 2, &["utf16be.txt", "UTF-16"]);
    place.write("t.txt.gz", [b"\x1f\x8b\x08\x00".as_slice(), &[7; 200]].concat());
    place.refused(&format!("{RUN} --data t.txt.gz --run r"), 2, &["t.txt.gz", "gzip"]);
    assert!(!place.path("r/metrics.jsonl").exists());
}

#[test]
fn b05_bytes_of_no_text_are_refused_with_their_offset() {
    let place = place();
    let text = small::text(5, 600);
    let mut tar = text.clone().into_bytes();
    tar.splice(450..450, [0; 512]);
    let wide = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    let files = [("le", 1, wide(u16::to_le_bytes)), ("be", 0, wide(u16::to_be_bytes)), ("tar", 450, tar)];
    for (name, offset, bytes) in files {
        place.write(&format!("{name}.txt"), bytes);
        let parts = [&format!("{name}.txt"), &format!("byte {offset}"), "NUL"];
        place.refused(&format!("{RUN} --data {name}.txt --run r"), 2, &parts);
    }
}

#[test]
fn a_tokenizer_in_another_form_is_refused_and_the_model_folder_named() {
    let place = place();
    place.write("t.txt", small::text(5, 600));
    for name in ["tekken.json", "spiece.model", "special_tokens_map.json", "x.tiktoken", "tokenizer_config.json"] {
        let file = place.write(&format!("m/{name}"), "{}");
        place.refused(&format!("{RUN} --data t.txt --run r"), 2, &[&place.path("m").display().to_string(), name]);
        std::fs::remove_file(file).expect("it can be removed");
    }
    place.write("m/tokenizer.json", "{}");
    place.refused(&format!("{RUN} --data t.txt --run r"), 2, &[&place.path("m/tokenizer.json").display().to_string()]);
    assert!(!place.path("r").exists());
}

#[test]
fn rows_without_targets_are_left_out_whatever_the_step() {
    let place = Place::new(MT);
    // Nothing closes a document.
    place.model("m", &Small::with(3, serde_json::json!({"eos_token_id": null})));
    let mut words = format!("{RUN} --seq-len 4 --batch 1 --steps 6 --checkpoint-every 1 --run r --data whole.txt")
        .replace("--seq-len 16 --batch 2 --steps 2 ", "");
    place.write("whole.txt", &small::text(5, 16)[..16]);
    for i in 0..4 {
        place.write(&format!("{i}.txt"), "x");
        words.push_str(&format!(" --data {i}.txt"));
    }
    let done = place.ok(&words);
    assert!(done.err.contains("1 of 5 rows"), "{done}");
    assert_eq!(place.metrics("r").len(), 6);
    place.refused(&words.replace("--data whole.txt", "").replace("--run r", "--run s"), 2, &["documents of one id"]);
    assert!(!place.path("s").exists());
}

#[test]
fn b05_invalid_utf8_is_refused_with_its_offset() {
    let place = place();
    for (name, offset, bytes) in
        [("lone", 333, b"\xff".as_slice()), ("cut", 599, b"\xe2\x82"), ("surrogate", 100, b"\xed\xa0\x80")]
    {
        let mut text = small::text(5, 600).into_bytes();
        text.truncate(600);
        text.splice(offset..(offset + bytes.len()).min(600), bytes.iter().copied());
        place.write(&format!("{name}.txt"), text);
        place.refused(&format!("{RUN} --data {name}.txt --run r"), 2, &[&format!("{name}.txt"), &offset.to_string()]);
    }
}

#[test]
fn a_byte_the_model_has_no_row_for_is_refused_with_its_offset() {
    let place = Place::new(MT);
    place.model("m", &Small::with(3, serde_json::json!({"vocab_size": 127, "bos_token_id": 1, "eos_token_id": 2})));
    let mut text = small::text(5, 600).into_bytes();
    text.splice(401..401, "\u{e9}".bytes());
    place.write("t.txt", &text);
    place.refused(&format!("{RUN} --data t.txt --run r"), 2, &["t.txt", "401", "127"]);
    place.write("good.txt", small::text(5, 600));
    place.ok(&format!("{RUN} --data good.txt --run good"));
}

#[test]
fn a_text_shorter_than_a_row_is_refused() {
    let place = place();
    place.write("short.txt", "fifteen bytes..");
    place.refused(&format!("{RUN} --data short.txt --run r"), 2, &["16"]);
    place.write("empty.txt", "");
    place.refused(&format!("{RUN} --data empty.txt --run r"), 2, &["16", "0 ids"]);
    place.write("row.txt", "exactly a row...");
    place.ok(&format!("{RUN} --data row.txt --run row"));
}

#[test]
fn several_files_are_documents_that_do_not_see_each_other() {
    let place = place();
    let text = small::text(5, 320);
    place.write("a.txt", &text[..40]);
    place.write("b.txt", &text[40..]);
    place.write("ab.txt", &text);
    place.ok(&format!("{RUN} --data ab.txt --run one"));
    place.ok(&format!("{RUN} --data a.txt --data b.txt --run two"));
    assert_ne!(place.losses("one"), place.losses("two"), "labels and attention stop at a document's start");
}

#[test]
fn a08_an_embedding_larger_than_the_tokenizer_trains_and_keeps_its_rows() {
    let place = Place::new(MT);
    place.model("m", &Small::with(3, serde_json::json!({"vocab_size": 576})));
    small::write_tokenizer(&place.path("m"));
    place.write("t.txt", small::text(5, 2_000));
    place.ok(&format!("{RUN} --data t.txt --run r"));
    assert_eq!(place.weights("r").shape("model.embed_tokens.weight"), [576, 64]);
    assert!(place.path("r-weights/tokenizer.json").exists(), "the tokenizer goes along");
}

#[test]
fn a08_an_id_beyond_the_embedding_is_refused_and_an_unused_one_only_warned_of() {
    let place = Place::new(MT);
    place.model("m", &Small::with(3, serde_json::json!({"vocab_size": 510})));
    small::write_tokenizer(&place.path("m"));
    place.write(
        "bad.txt",
        format!("{}\nsecond line <unk> here\n{}", &small::text(5, 300).replace('\n', " "), small::text(6, 300)),
    );
    place.refused(&format!("{RUN} --data bad.txt --run bad"), 2, &["bad.txt", "511", "2"]);
    assert!(!place.path("bad/metrics.jsonl").exists());
    place.write("good.txt", small::text(5, 2_000));
    let done = place.ok(&format!("{RUN} --data good.txt --run good"));
    let said = format!("{}{}", done.out, done.err);
    let warned = said.lines().any(|l| l.contains("510") && l.contains("512"));
    assert!(warned, "a word about the two sizes: {done}");
}
