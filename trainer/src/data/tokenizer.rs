//! Text to token ids and back.
//!
//! Ids are those of encoding a document whole, without special tokens added around it. (A special token written out in
//! the text is that token, as everywhere.) Truncation and padding that a `tokenizer.json` asks for are off: they are
//! for other uses. Without tokenizer files a byte is an id.
//!
//! No network: everything is read from the model's folder.

use super::pieces;
use crate::error::{Error, Result};
use crate::input;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::Path;
use twox_hash::xxhash3_64;

/// Files that say that a model has a tokenizer. Taking bytes as ids beside one of them would train on nonsense.
const OTHER_FILES: [&str; 10] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tekken.json",
    // And all files that end with these.
    ".model",
    ".tiktoken",
    ".spm",
];

/// A tokenizer and its end-of-sequence token.
pub struct Tokenizer {
    kind: Kind,
    eos: Option<u32>,
    digest: u64,
}

enum Kind {
    Bytes,
    File { tokenizer: Box<tokenizers::Tokenizer>, pieces: bool },
}

/// An id and where its text begins in what was encoded.
pub struct Place {
    /// The token id.
    pub id: u32,
    /// Bytes from the start of the encoded text.
    pub offset: usize,
}

impl Tokenizer {
    /// Bytes as ids, without an end of sequence.
    pub fn bytes() -> Tokenizer {
        Tokenizer { kind: Kind::Bytes, eos: None, digest: 0 }
    }

    /// Reads `tokenizer.json` of a model folder, and `tokenizer_config.json` for the end of sequence. None if the
    /// folder has no tokenizer files; a folder whose tokenizer is in another form is refused.
    pub fn load(folder: &Path) -> Result<Option<Tokenizer>> {
        let path = folder.join("tokenizer.json");
        let Some(bytes) = read_if_present(&path)? else {
            return match other_file(folder)? {
                None => Ok(None),
                Some(name) => Err(Error::Input {
                    place: folder.display().to_string(),
                    field: "tokenizer.json".into(),
                    expected: "the tokenizer in one file".into(),
                    found: format!("only {name}"),
                    hint: Some(
                        "save it with transformers' AutoTokenizer, or leave all tokenizer files out: bytes are ids"
                            .into(),
                    ),
                }),
            };
        };
        let mut tokenizer = Tokenizer::parse(&bytes, &path)?;
        let config = folder.join("tokenizer_config.json");
        if let Some(bytes) = read_if_present(&config)? {
            let json: Value = serde_json::from_slice(&bytes).map_err(|e| invalid(&config, &e))?;
            tokenizer.eos = tokenizer.resolve_eos(&json["eos_token"]);
        }
        Ok(Some(tokenizer))
    }

    /// From the text of a `tokenizer.json`, without an end of sequence; `path` is named in errors.
    pub fn parse(json: &[u8], path: &Path) -> Result<Tokenizer> {
        let value: Value = serde_json::from_slice(json).map_err(|e| invalid(path, &e))?;
        let mut tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(|e| invalid(path, &e))?;
        tokenizer.with_truncation(None).map_err(|e| invalid(path, &e))?;
        tokenizer.with_padding(None);
        let kind = Kind::File { tokenizer: Box::new(tokenizer), pieces: pieces::cuts_at_word_ends(&value) };
        Ok(Tokenizer { kind, eos: None, digest: xxhash3_64::Hasher::oneshot(json) })
    }

    /// Token that closes a document: `eos_token` of `tokenizer_config.json`, else what [`Tokenizer::or_eos`] gave.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Takes the first of the ids that the model's configuration names, if the tokenizer's own files name none.
    /// An id that is a byte stays a byte: without tokenizer files only ids from 256 on can close a document.
    pub fn or_eos(mut self, config: &[u32]) -> Tokenizer {
        let first = config.first().copied().filter(|&id| !matches!(self.kind, Kind::Bytes) || id > 255);
        self.eos = self.eos.or(first);
        self
    }

    /// XXH3-64 of `tokenizer.json`; 0 for bytes.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// One more than the largest id.
    pub fn id_end(&self) -> u64 {
        match &self.kind {
            Kind::Bytes => 256,
            Kind::File { tokenizer, .. } => {
                tokenizer.get_vocab(true).into_values().max().map_or(0, |id| u64::from(id) + 1)
            }
        }
    }

    /// Whether bytes are ids.
    pub fn is_bytes(&self) -> bool {
        matches!(self.kind, Kind::Bytes)
    }

    /// Ids of `text`, without special tokens around it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match &self.kind {
            Kind::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Kind::File { tokenizer, .. } => {
                let encoding = tokenizer.encode_fast(text, false).map_err(|e| failed("encoding", &e))?;
                Ok(encoding.get_ids().to_vec())
            }
        }
    }

    /// The ids of `text` with the place of each; slower than [`Tokenizer::encode`].
    pub fn encode_places(&self, text: &str) -> Result<Vec<Place>> {
        match &self.kind {
            Kind::Bytes => Ok(text.bytes().enumerate().map(|(offset, b)| Place { id: b.into(), offset }).collect()),
            Kind::File { tokenizer, .. } => {
                let encoding = tokenizer.encode(text, false).map_err(|e| failed("encoding", &e))?;
                let places = encoding.get_ids().iter().zip(encoding.get_offsets());
                Ok(places.map(|(&id, &(offset, _))| Place { id, offset }).collect())
            }
        }
    }

    /// Text of `ids`; special tokens are left out, ids without text too, and what is not UTF-8 is shown as U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        match &self.kind {
            Kind::Bytes => {
                let bytes: Vec<u8> = ids.iter().filter_map(|&id| u8::try_from(id).ok()).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Kind::File { tokenizer, .. } => tokenizer.decode(ids, true).map_err(|e| failed("decoding", &e)),
        }
    }

    /// The last place in `text` (bytes from its start) at which the text may be cut so that the ids of both parts, one
    /// after the other, are the ids of the whole. None if none is known.
    pub fn last_cut(&self, text: &str) -> Option<usize> {
        match &self.kind {
            Kind::Bytes => Some(text.len()),
            Kind::File { pieces: true, .. } => pieces::last_word_end(text),
            Kind::File { pieces: false, .. } => None,
        }
    }

    /// A token that is named but unknown counts as not named: the model's configuration then has the say.
    fn resolve_eos(&self, field: &Value) -> Option<u32> {
        let name = field.as_str().or_else(|| field["content"].as_str())?;
        match &self.kind {
            Kind::Bytes => None,
            Kind::File { tokenizer, .. } => tokenizer.token_to_id(name),
        }
    }
}

/// A file that says that the folder has a tokenizer in another form; the first by name.
fn other_file(folder: &Path) -> Result<Option<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| Error::io(folder, "listing", e))?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_other = |name: &String| {
        OTHER_FILES.iter().any(|other| if other.starts_with('.') { name.ends_with(other) } else { name == other })
    };
    Ok(names.filter(is_other).min())
}

fn read_if_present(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = input::open_if_present(path, "a tokenizer's file")?;
    file.map(|file| input::bytes(path, file)).transpose()
}

fn invalid(path: &Path, found: &dyn std::fmt::Display) -> Error {
    Error::input(path.display().to_string(), "content", "a tokenizer that can be read", found.to_string())
}

fn failed(doing: &str, found: &dyn std::fmt::Display) -> Error {
    Error::input("tokenizer", doing, "ids", found.to_string())
}

#[cfg(test)]
pub(super) mod tests;
