//! Reads a text file as one document, in pieces of bounded size.
//!
//! A document is UTF-8. A byte order mark at its start is dropped; everything else is kept as it stands, CRLF and empty
//! lines too. What is not plain UTF-8 text is refused with the byte at which that shows: UTF-16 and UTF-32 with a byte
//! order mark, gzip, NUL bytes (UTF-16 without a mark, archives, weights), invalid and cut-off sequences. Offsets count
//! bytes of the file, lines count from 1.
//!
//! A *cut* is a place at which a piece may end. Who encodes the pieces says where cuts are; a document without cuts
//! comes as one piece, and then takes memory in proportion to its size.

use crate::error::{Error, Result};
use crate::input;
use std::fs::File;
use std::hash::Hasher;
use std::io::Read;
use std::path::Path;
use twox_hash::xxhash3_64;

/// Bytes read at a time. Encoding takes 150 to 250 bytes of memory for a byte of text; this keeps it near 4 MiB.
const CHUNK_BYTES: usize = 16 << 10;

/// What a document's file is, in refusals.
const EXPECTED: &str = "a text file";

/// Part of a document.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Never empty.
    pub text: &'a str,
    /// Byte of the file at which it begins.
    pub offset: u64,
    /// Line of the file in which it begins.
    pub line: u64,
}

/// What a file was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// Size of the file.
    pub bytes: u64,
    /// XXH3-64 of the file's bytes.
    pub digest: u64,
}

/// Gives the pieces of the document in `path` to `take`, in order. `last_cut` finds the last place in a text at which a
/// piece may end, counted in bytes from its start; None if there is none. It must see a cut from the character before
/// and the one behind it.
pub fn read_document(
    path: &Path,
    last_cut: impl Fn(&str) -> Option<usize>,
    mut take: impl FnMut(Piece<'_>) -> Result<()>,
) -> Result<FileSummary> {
    let mut file = input::open(path, EXPECTED).map_err(|error| error.named_by("--data"))?;
    let mut digest = xxhash3_64::Hasher::new();
    let mut bytes = 0;
    let mut pending = Pending { buffer: Vec::new(), valid: 0, searched: 0, offset: 0, line: 1 };
    loop {
        let old = pending.buffer.len();
        let read = read_chunk(path, &mut file, &mut pending.buffer)?;
        digest.write(&pending.buffer[old..]);
        if bytes == 0 {
            refuse_other_formats(path, &pending.buffer)?;
            if pending.buffer.starts_with(b"\xEF\xBB\xBF") {
                pending.consume(3);
            }
        }
        bytes += read as u64;
        let ended = read < CHUNK_BYTES;
        pending.validate(path, ended)?;
        if let Some(end) = pending.cut(&last_cut, ended) {
            take(Piece { text: &pending.text()[..end], offset: pending.offset, line: pending.line })?;
            pending.consume(end);
        }
        if ended {
            return Ok(FileSummary { bytes, digest: digest.finish() });
        }
    }
}

/// XXH3-64 of a file's bytes; None if there is no such file.
pub fn file_digest(path: &Path) -> Result<Option<FileSummary>> {
    let Some(mut file) = input::open_if_present(path, EXPECTED)? else { return Ok(None) };
    let mut digest = xxhash3_64::Hasher::new();
    let mut bytes = 0;
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let read = read_chunk(path, &mut file, &mut buffer)?;
        digest.write(&buffer);
        bytes += read as u64;
        if read < CHUNK_BYTES {
            return Ok(Some(FileSummary { bytes, digest: digest.finish() }));
        }
    }
}

/// Bytes that were read and not yet given on.
struct Pending {
    buffer: Vec<u8>,
    /// Bytes at the start of the buffer that are known to be whole UTF-8 sequences.
    valid: usize,
    /// Bytes at the start of the buffer that are known to hold no cut.
    searched: usize,
    /// Place of the buffer's first byte in the file.
    offset: u64,
    line: u64,
}

impl Pending {
    /// Extends `valid`. A sequence that the buffer's end cuts off is waited for unless the file has ended.
    fn validate(&mut self, path: &Path, ended: bool) -> Result<()> {
        let begin = self.valid;
        let validated = self.validate_utf8(path, ended);
        // A NUL byte is UTF-8, but of no text; it is told before what else is wrong behind it.
        if let Some(at) = self.buffer[begin..self.valid].iter().position(|byte| *byte == 0).map(|at| begin + at) {
            let line = self.line + newlines(&self.buffer[..at]);
            let hint = "if it is UTF-16, convert it: iconv -f UTF-16LE -t UTF-8; an archive must be unpacked";
            return Err(refused(path, self.offset + at as u64, Some(line), "UTF-8 text", "a NUL byte", hint));
        }
        validated
    }

    fn validate_utf8(&mut self, path: &Path, ended: bool) -> Result<()> {
        let Err(error) = std::str::from_utf8(&self.buffer[self.valid..]) else {
            self.valid = self.buffer.len();
            return Ok(());
        };
        self.valid += error.valid_up_to();
        let rest = &self.buffer[self.valid..];
        let found = match error.error_len() {
            None if !ended => return Ok(()),
            None => format!("a sequence cut off by the end of the file ({})", hex(rest)),
            Some(_) => format!("invalid UTF-8 ({})", hex(&rest[..rest.len().min(4)])),
        };
        let line = self.line + newlines(&self.buffer[..self.valid]);
        let offset = self.offset + self.valid as u64;
        Err(refused(path, offset, Some(line), "UTF-8 text", &found, "convert the file to UTF-8"))
    }

    /// Where the next piece ends. Searches only what is new, so that a document without cuts is searched once.
    fn cut(&mut self, last_cut: impl Fn(&str) -> Option<usize>, ended: bool) -> Option<usize> {
        if ended {
            return Some(self.valid).filter(|&end| end > 0);
        }
        let text = std::str::from_utf8(&self.buffer[self.searched..self.valid]).expect("validated");
        let cut = last_cut(text).filter(|&end| end > 0).map(|end| self.searched + end);
        // The last character may be the one before a cut.
        self.searched += text.char_indices().next_back().map_or(0, |(at, _)| at);
        cut
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.buffer[..self.valid]).expect("validated")
    }

    fn consume(&mut self, bytes: usize) {
        self.line += newlines(&self.buffer[..bytes]);
        self.offset += bytes as u64;
        self.valid = self.valid.saturating_sub(bytes);
        self.searched = self.searched.saturating_sub(bytes);
        self.buffer.drain(..bytes);
    }
}

/// Appends up to `CHUNK_BYTES`; fewer only at the end of the file.
fn read_chunk(path: &Path, file: &mut File, buffer: &mut Vec<u8>) -> Result<usize> {
    file.take(CHUNK_BYTES as u64).read_to_end(buffer).map_err(|e| Error::io(path, "reading", e))
}

fn refuse_other_formats(path: &Path, start: &[u8]) -> Result<()> {
    let (found, hint) = match start {
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] => ("UTF-32 (a byte order mark)", "convert it: iconv -t UTF-8"),
        [0xFF, 0xFE, ..] => ("UTF-16, little-endian (byte order mark FF FE)", "convert it: iconv -f UTF-16 -t UTF-8"),
        [0xFE, 0xFF, ..] => ("UTF-16, big-endian (byte order mark FE FF)", "convert it: iconv -f UTF-16 -t UTF-8"),
        [0x1F, 0x8B, ..] => ("gzip (1F 8B)", "unpack it: gunzip"),
        _ => return Ok(()),
    };
    Err(refused(path, 0, None, "UTF-8 text", found, hint))
}

fn refused(path: &Path, offset: u64, line: Option<u64>, expected: &str, found: &str, hint: &str) -> Error {
    let line = line.map(|l| format!(" (line {l})")).unwrap_or_default();
    Error::Input {
        place: path.display().to_string(),
        field: format!("byte {offset}{line}"),
        expected: expected.into(),
        found: found.into(),
        hint: Some(hint.into()),
    }
}

/// Number of line ends in `bytes`.
pub fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&b| b == b'\n').count() as u64
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
