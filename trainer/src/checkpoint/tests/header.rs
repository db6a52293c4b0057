//! Headers that lie: every length, range, name and number of the file is untrusted. Each refusal has sound twins.

use super::super::header::{self, Entry};
use super::{assert_says, file_of, refusal};
use crate::error::Result;
use std::fs::File;

fn read(bytes: &[u8]) -> Result<Vec<Entry>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some.safetensors");
    std::fs::write(&path, bytes).unwrap();
    header::read(&File::open(&path).unwrap(), &path)
}

fn refused(bytes: &[u8], says: &[&str]) {
    let text = refusal(read(bytes));
    assert_says(&text, &["some.safetensors"]);
    assert_says(&text, says);
}

/// Two tensors of 8 bytes each, with these ranges.
fn two(first: &str, second: &str) -> Vec<u8> {
    let entry = |name, range| format!(r#""{name}":{{"dtype":"F32","shape":[2],"data_offsets":{range}}}"#);
    file_of(&format!("{{{},{}}}", entry("a", first), entry("b", second)), &[0; 16])
}

#[test]
fn lengths_that_no_file_has_are_refused_before_anything_is_taken() {
    refused(&[], &["0 bytes"]);
    refused(&[1, 0, 0, 0, 0, 0, 0], &["7 bytes"]);
    refused(&[0xFF; 1_024], &["18446744073709551615", "1024"]);
    refused(&[&(1_u64 << 40).to_le_bytes()[..], &[b' '; 1_016]].concat(), &["1099511627776", "1024"]);
    refused(&[&100_u64.to_le_bytes()[..], &[b' '; 99]].concat(), &["at most 99", "100 bytes"]);
}

#[test]
fn other_formats_are_named() {
    let zip = [b"PK\x03\x04\x14\x00\x08\x08", &[0_u8; 100][..]].concat();
    refused(&zip, &["pickle"]);
    refused(&[b"\x80\x02\x8a\x0al\xfc\x9cF", &[0_u8; 100][..]].concat(), &["pickle"]);
    refused(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", &["Git LFS"]);
    refused(&[b"GGUF\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00", &[0_u8; 100][..]].concat(), &["GGUF"]);
    refused(b"<!DOCTYPE html><html></html>", &["web page"]);
}

#[test]
fn headers_that_are_no_table_of_tensors_are_refused() {
    for bad in ["", "   ", "null", "[]", "{", "{}x", "{\"a\":1}", "{\"a\":null}", "{\"a\":{}}", "\u{0}"] {
        refused(&file_of(bad, &[]), &["header"]);
    }
    let entry = |text: &str| file_of(&format!("{{\"w\":{text}}}"), &[0; 8]);
    assert!(read(&entry(r#"{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#)).is_ok());
    for bad in [
        r#"{"shape":[2],"data_offsets":[0,8]}"#,
        r#"{"dtype":"F32","data_offsets":[0,8]}"#,
        r#"{"dtype":"F32","shape":[2]}"#,
        r#"{"dtype":"F32","shape":2,"data_offsets":[0,8]}"#,
        r#"{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}"#,
        r#"{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}"#,
        r#"{"dtype":"F32","shape":[2],"data_offsets":[0]}"#,
        r#"{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}"#,
        r#"{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551616]}"#,
        r#"{"dtype":"F32","shape":[2,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,8]}"#,
        r#"{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}"#,
    ] {
        refused(&entry(bad), &["header", "w: "]);
    }
    refused(&file_of(&"[".repeat(100_000), &[]), &["header"]);
    refused(&file_of(&format!("{{\"a\":{}", "{\"a\":".repeat(100_000)), &[]), &["header"]);
    refused(&[&2_u64.to_le_bytes()[..], &[b'"', 0xFF]].concat(), &["header"]);
}

#[test]
fn ranges_that_lie_are_refused_by_tensor() {
    assert_eq!(read(&two("[0,8]", "[8,16]")).unwrap().len(), 2);
    refused(&two("[8,0]", "[8,16]"), &["a: ", "[8, 0]"]);
    refused(&two("[0,8]", "[0,8]"), &["overlaps"]);
    refused(&two("[0,8]", "[4,12]"), &["b: ", "overlaps"]);
    refused(&two("[0,8]", "[12,20]"), &["b: ", "gap"]);
    refused(&two("[4,12]", "[12,20]"), &["a: ", "gap"]);
    refused(&two("[0,8]", "[8,12]"), &["b: ", "8 bytes for F32 [2]", "4 bytes"]);
    refused(&two("[0,8]", "[8,24]"), &["b: ", "16 bytes"]);
    refused(&two("[0,8]", "[8,18446744073709551615]"), &["b: "]);
    refused(&two("[18446744073709551607,18446744073709551615]", "[0,8]"), &["a: ", "gap"]);
}

#[test]
fn shapes_whose_product_overflows_are_refused_by_tensor() {
    let of = |shape: &str| {
        let header = format!(r#"{{"w":{{"dtype":"F32","shape":{shape},"data_offsets":[0,8]}}}}"#);
        file_of(&header, &[0; 8])
    };
    for shape in
        ["[4294967296,4294967296]", "[9223372036854775809,2]", "[18446744073709551615,2]", "[4611686018427387904]"]
    {
        refused(&of(shape), &["w: ", "2^64"]);
    }
    refused(&of("[2,1,0]"), &["w: ", "0 bytes for F32"]);
    assert!(read(&of("[1,2,1]")).is_ok());
}

#[test]
fn names_that_come_twice_are_refused() {
    let entry = r#"{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;
    refused(&file_of(&format!(r#"{{"w":{entry},"w":{entry}}}"#), &[0; 8]), &["\"w\" twice"]);
    refused(&file_of(&format!(r#"{{"w":{entry},"\u0077":{entry}}}"#), &[0; 8]), &["\"w\" twice"]);
    refused(&file_of(&format!(r#"{{"__metadata__":{{}},"w":{entry},"__metadata__":{{}}}}"#), &[0; 8]), &["twice"]);
    refused(&file_of(&format!(r#"{{"__metadata__":{{"a":"1","a":"2"}},"w":{entry}}}"#), &[0; 8]), &["\"a\" twice"]);
}

#[test]
fn unknown_formats_are_refused_by_tensor() {
    for (dtype, known) in [("F32", true), ("I32", true), ("Q4_0", false), ("f32", false), ("", false)] {
        let bytes = file_of(&format!(r#"{{"w":{{"dtype":"{dtype}","shape":[2],"data_offsets":[0,8]}}}}"#), &[0; 8]);
        match known {
            true => assert_eq!(read(&bytes).unwrap()[0].dtype, dtype),
            false => refused(&bytes, &["w: ", "known", dtype]),
        }
    }
    // Three elements of 4 bits do not fill bytes.
    refused(&file_of(r#"{"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}"#, &[0; 2]), &["w: "]);
}

#[test]
fn files_cut_off_or_appended_to_are_refused_with_byte_counts() {
    let sound = two("[0,8]", "[8,16]");
    let bytes = sound.len();
    assert!(read(&sound).is_ok());
    for cut in 1..=16 {
        let found = bytes - cut;
        refused(&sound[..found], &[&format!("expected {bytes} bytes"), &format!("found {found} bytes")]);
    }
    let longer = [&sound[..], &[0; 100]].concat();
    refused(&longer, &[&format!("expected {bytes} bytes"), &format!("found {} bytes", bytes + 100)]);
}

#[test]
fn legal_but_unusual_headers_are_read() {
    let entry = r#""w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;
    let position = |header: &str| read(&file_of(header, &[0; 8])).unwrap()[0].position as usize;
    for header in [
        format!("{{{entry}}}"),
        format!(r#"{{"__metadata__":{{}},{entry}}}"#),
        format!(r#"{{{entry},"__metadata__":{{"format":"pt","note":"\u00e9"}}}}"#),
        format!("{{{entry}}}{}", " ".repeat(500)),
        format!("{{\n  {entry} }}\n"),
        r#"{"w":{"data_offsets":[0,8],"shape":[2],"other":[{}],"dtype":"F32"}}"#.into(),
        format!("{{{entry}}}{}", " ".repeat(100_000 - entry.len() - 2)),
    ] {
        assert_eq!(position(&header), 8 + header.len(), "{header:.100}");
    }
    let names = |bytes: &[u8]| read(bytes).unwrap().into_iter().map(|e| e.name).collect::<Vec<_>>();
    assert_eq!(names(&two("[8,16]", "[0,8]")), ["b", "a"]);
    let empty = r#"{"e":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},
        "s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;
    assert_eq!(names(&file_of(empty, &[0; 4])), ["e", "s"]);
    assert_eq!(names(&file_of("{}", &[])), [""; 0]);
}
