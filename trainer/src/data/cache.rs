//! The run's token ids in one file, `tokens.bin` of the run folder, so that a step reads only its own rows and a
//! resumed run trains on the same ids.
//!
//! | offset | bytes | content |
//! | --- | --- | --- |
//! | 0 | 8 | `MTTOKENS` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | zeros |
//! | 16 | 8 | number of ids n |
//! | 24 | 8 | bytes of the description d |
//! | 32 | 8 | XXH3-64 of the ids' bytes |
//! | 40 | 8 | XXH3-64 of the description |
//! | 48 | 8 | zeros |
//! | 56 | 8 | XXH3-64 of bytes 0 to 55 |
//! | 64 | 4 n | the ids, u32 |
//! | 64 + 4 n | d | the description: [`Description`] as JSON |
//!
//! All integers are little-endian. The file is written under another name, synced, and renamed: it is there whole or
//! not at all. Both checksums are verified when it is opened.
//!
//! The description says what the ids were made from. When a run is resumed, source files that are still there are read
//! again and must be the same; those that are gone are not needed any more.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::hash::Hasher;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use twox_hash::xxhash3_64;

const MAGIC: &[u8; 8] = b"MTTOKENS";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 64;
/// Ids read at a time where all are read.
const BLOCK_IDS: usize = 64 << 10;

/// A file that ids were made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// As given to the run.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// XXH3-64 of its bytes.
    pub digest: u64,
}

/// What ids were made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Text files, in order.
    Files(Vec<SourceFile>),
    /// The built-in sentences.
    Sentences {
        /// Seed of the generator.
        seed: u64,
        /// Bytes of text.
        bytes: u64,
    },
    /// Random ids.
    Random {
        /// Seed of the generator.
        seed: u64,
        /// Number of ids.
        ids: u64,
    },
}

/// What stands in a cache beside the ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// What the ids were made from.
    pub origin: Origin,
    /// Digest of the tokenizer; 0 for bytes.
    pub tokenizer: u64,
    /// Token that closes documents, if there are several.
    pub eos: Option<u32>,
    /// Every id is below this.
    pub vocab: u64,
    /// Index of the first id of each document, rising.
    pub starts: Vec<u64>,
    /// Files without text.
    pub empty_files: u64,
}

/// Writes a cache.
pub struct CacheWriter {
    path: PathBuf,
    temporary: PathBuf,
    file: BufWriter<File>,
    digest: xxhash3_64::Hasher,
    ids: u64,
}

impl CacheWriter {
    /// Begins the file that will be `path`.
    pub fn create(path: &Path) -> Result<CacheWriter> {
        let temporary = path.with_extension("bin.new");
        let create = || {
            let mut file = BufWriter::with_capacity(1 << 18, File::create(&temporary)?);
            file.write_all(&[0; HEADER_BYTES as usize])?;
            Ok(file)
        };
        let file = create().map_err(|e| Error::io(&temporary, "creating", e))?;
        Ok(CacheWriter { path: path.into(), temporary, file, digest: xxhash3_64::Hasher::new(), ids: 0 })
    }

    /// Ids so far.
    pub fn ids(&self) -> u64 {
        self.ids
    }

    /// Appends ids.
    pub fn push(&mut self, ids: &[u32]) -> Result<()> {
        for block in ids.chunks(BLOCK_IDS) {
            let bytes: Vec<u8> = block.iter().flat_map(|id| id.to_le_bytes()).collect();
            self.digest.write(&bytes);
            self.file.write_all(&bytes).map_err(|e| Error::io(&self.temporary, "writing", e))?;
        }
        self.ids += ids.len() as u64;
        Ok(())
    }

    /// Completes the file and gives it its name.
    pub fn finish(mut self, description: &Description) -> Result<()> {
        let text = serde_json::to_vec(description).expect("numbers, paths and lists are JSON");
        let header = header(self.ids, &text, self.digest.finish());
        let mut end = || {
            self.file.write_all(&text)?;
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&header)?;
            self.file.flush()?;
            self.file.get_ref().sync_all()?;
            std::fs::rename(&self.temporary, &self.path)?;
            let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()
        };
        end().map_err(|e| Error::io(&self.path, "writing", e))
    }
}

impl Drop for CacheWriter {
    fn drop(&mut self) {
        // Not there any more once renamed; what an error left behind is only litter.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

fn header(ids: u64, description: &[u8], ids_digest: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&ids.to_le_bytes());
    header[24..32].copy_from_slice(&(description.len() as u64).to_le_bytes());
    header[32..40].copy_from_slice(&ids_digest.to_le_bytes());
    header[40..48].copy_from_slice(&xxhash3_64::Hasher::oneshot(description).to_le_bytes());
    let checksum = xxhash3_64::Hasher::oneshot(&header[..56]);
    header[56..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// A complete cache, open for reading.
#[derive(Debug)]
pub struct TokenCache {
    path: PathBuf,
    file: File,
    ids: u64,
    digest: u64,
    description: Description,
}

impl TokenCache {
    /// Opens and verifies `path`; None if there is no such file.
    pub fn open(path: &Path) -> Result<Option<TokenCache>> {
        let file = match File::open(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| Error::io(path, "opening", e))?,
        };
        let bytes = file.metadata().map_err(|e| Error::io(path, "opening", e))?.len();
        let mut header = [0; HEADER_BYTES as usize];
        if bytes < HEADER_BYTES {
            return Err(damaged(path, "size", "at least 64 bytes", &bytes));
        }
        file.read_exact_at(&mut header, 0).map_err(|e| Error::io(path, "reading", e))?;
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        if &header[..8] != MAGIC {
            return Err(damaged(path, "byte 0", "MTTOKENS", &header[..8].escape_ascii()));
        }
        let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(Error::input(path.display().to_string(), "version", VERSION.to_string(), version.to_string()));
        }
        if xxhash3_64::Hasher::oneshot(&header[..56]) != word(56) {
            return Err(damaged(path, "header", "its checksum", &"another"));
        }
        let (ids, description_bytes) = (word(16), word(24));
        if HEADER_BYTES + 4 * ids + description_bytes != bytes {
            let expected = format!("{} bytes", HEADER_BYTES + 4 * ids + description_bytes);
            return Err(damaged(path, "size", &expected, &bytes));
        }
        let mut text = vec![0; description_bytes as usize];
        file.read_exact_at(&mut text, HEADER_BYTES + 4 * ids).map_err(|e| Error::io(path, "reading", e))?;
        if xxhash3_64::Hasher::oneshot(&text) != word(40) {
            return Err(damaged(path, "description", "its checksum", &"another"));
        }
        let description = serde_json::from_slice(&text).map_err(|e| damaged(path, "description", "JSON", &e))?;
        let cache = TokenCache { path: path.into(), file, ids, digest: word(32), description };
        cache.verify()?;
        Ok(Some(cache))
    }

    fn verify(&self) -> Result<()> {
        let mut digest = xxhash3_64::Hasher::new();
        let mut buffer = vec![0; 4 * BLOCK_IDS];
        let mut at = 0;
        while at < self.ids {
            let block = &mut buffer[..4 * (self.ids - at).min(BLOCK_IDS as u64) as usize];
            self.read_bytes(at, block)?;
            digest.write(block);
            at += block.len() as u64 / 4;
        }
        match digest.finish() == self.digest {
            true => Ok(()),
            false => Err(damaged(&self.path, "ids", "their checksum", &"another")),
        }
    }

    /// Number of ids.
    pub fn ids(&self) -> u64 {
        self.ids
    }

    /// XXH3-64 of the ids.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// What the ids were made from, and where documents start.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The `count` ids from `first` on.
    pub fn read(&self, first: u64, count: usize) -> Result<Vec<u32>> {
        let mut bytes = vec![0; 4 * count];
        self.read_bytes(first, &mut bytes)?;
        let (words, rest) = bytes.as_chunks::<4>();
        debug_assert!(rest.is_empty());
        Ok(words.iter().map(|&word| u32::from_le_bytes(word)).collect())
    }

    fn read_bytes(&self, first: u64, bytes: &mut [u8]) -> Result<()> {
        assert!(first + bytes.len() as u64 / 4 <= self.ids, "within the ids");
        self.file.read_exact_at(bytes, HEADER_BYTES + 4 * first).map_err(|e| Error::io(&self.path, "reading", e))
    }
}

fn damaged(path: &Path, field: &str, expected: &str, found: &dyn std::fmt::Display) -> Error {
    Error::Input {
        place: path.display().to_string(),
        field: field.into(),
        expected: expected.into(),
        found: found.to_string(),
        hint: Some("the file is damaged; if the data files are unchanged, remove it and it is made again".into()),
    }
}

#[cfg(test)]
mod tests;
