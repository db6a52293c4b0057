use super::*;
use std::path::PathBuf;

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// The whole document, and the number of pieces it came in.
fn read(bytes: &[u8], last_cut: impl Fn(&str) -> Option<usize>) -> Result<(String, usize)> {
    let (_folder, path) = file("a.txt", bytes);
    let (mut text, mut pieces) = (String::new(), 0);
    let bom = if bytes.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
    let summary = read_document(&path, last_cut, |piece| {
        assert!(!piece.text.is_empty());
        assert_eq!(piece.offset, bom + text.len() as u64);
        assert_eq!(piece.line, 1 + newlines(text.as_bytes()));
        text.push_str(piece.text);
        pieces += 1;
        Ok(())
    })?;
    assert_eq!(summary.bytes, bytes.len() as u64);
    assert_eq!(summary.digest, xxhash3_64::Hasher::oneshot(bytes));
    assert_eq!(file_digest(&path)?, Some(summary));
    Ok((text, pieces))
}

fn whole(bytes: &[u8]) -> Result<String> {
    read(bytes, |_| None).map(|(text, _)| text)
}

fn message(bytes: &[u8]) -> String {
    let error = whole(bytes).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

/// Fault kind B05, for text: forms that are read.
#[test]
fn byte_order_mark_is_dropped_and_the_rest_kept() {
    assert_eq!(whole(b"a\r\n\r\nb\n\n\nc").unwrap(), "a\r\n\r\nb\n\n\nc");
    assert_eq!(whole(b"\xEF\xBB\xBFa\r\nb").unwrap(), "a\r\nb");
    assert_eq!(whole("a\u{FEFF}b".as_bytes()).unwrap(), "a\u{FEFF}b");
    assert_eq!(whole(b"\xEF\xBB\xBF\xEF\xBB\xBFa").unwrap(), "\u{FEFF}a");
    assert_eq!(whole(b"").unwrap(), "");
    assert_eq!(whole(b"\xEF\xBB\xBF").unwrap(), "");
    assert_eq!(whole(b"[{\"text\": 1}]").unwrap(), "[{\"text\": 1}]");
}

/// Fault kind B05, for text: forms that are refused, with the byte and what is there.
#[test]
fn other_formats_are_refused_by_name_and_offset() {
    for (bytes, expected) in [
        (&b"\xFF\xFEa\0b\0"[..], "UTF-16, little-endian"),
        (b"\xFE\xFF\0a\0b", "UTF-16, big-endian"),
        (b"\xFF\xFE\0\0a\0\0\0", "UTF-32"),
        (b"\x1F\x8B\x08\0rest", "gzip (1F 8B)"),
    ] {
        let text = message(bytes);
        assert!(text.contains("a.txt: byte 0: expected UTF-8 text") && text.contains(expected), "{text}");
    }
    let text = message(b"one\ntwo \xC3( three");
    assert!(text.contains("byte 8 (line 2)") && text.contains("invalid UTF-8 (C3 28 20 74)"), "{text}");
    let text = message(b"\xEF\xBB\xBFab\xFF");
    assert!(text.contains("byte 5 (line 1)") && text.contains("FF"), "{text}");
    let text = message(b"ab\xE2\x82");
    assert!(text.contains("byte 2 (line 1)") && text.contains("cut off by the end of the file (E2 82)"), "{text}");
}

#[test]
fn missing_files_and_folders_are_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let none = |_: &str| None;
    let missing = folder.path().join("none.txt");
    for (path, expected) in [(missing.as_path(), "no such file"), (folder.path(), "a folder")] {
        let error = read_document(path, none, |_| Ok(())).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(file_digest(&missing).unwrap(), None);
}

/// Sequences of several bytes fall on every place of a chunk's end.
#[test]
fn pieces_are_the_document_whatever_falls_on_their_ends() {
    for lead in 0..5 {
        let text = "x".repeat(lead) + &"a\u{e9}\u{20AC}\u{1F600}\n".repeat(3 * CHUNK_BYTES / 11);
        let (joined, pieces) = read(text.as_bytes(), |t| Some(t.len())).unwrap();
        assert_eq!(joined, text);
        assert!(pieces >= 3);
        let (joined, pieces) = read(text.as_bytes(), |t| t.rfind('\n')).unwrap();
        assert_eq!(joined, text);
        assert!(pieces >= 3);
        assert_eq!(read(text.as_bytes(), |_| None).unwrap(), (text, 1));
    }
}

#[test]
fn sizes_around_a_chunk() {
    for size in [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES] {
        let text = "y".repeat(size);
        assert_eq!(whole(text.as_bytes()).unwrap(), text);
        let (joined, _) = read(text.as_bytes(), |t| Some(t.len() / 2)).unwrap();
        assert_eq!(joined, text);
    }
}

#[test]
fn an_offset_far_into_the_file_is_that_of_the_file() {
    let mut bytes = b"line\n".repeat(CHUNK_BYTES);
    bytes[4 * CHUNK_BYTES + 3] = 0x80;
    let text = read(&bytes, |t| t.rfind('\n')).unwrap_err().to_string();
    let line = (4 * CHUNK_BYTES + 3) / 5 + 1;
    assert!(text.contains(&format!("byte {} (line {line})", 4 * CHUNK_BYTES + 3)), "{text}");
}
