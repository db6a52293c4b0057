//! Makes the token cache of a run, and compares one with what is there now.

use super::cache::{CacheWriter, Description, Origin, SourceFile, TokenCache};
use super::sentences::default_text;
use super::text::{self, FileSummary, Piece};
use super::tokenizer::Tokenizer;
use super::{DataOptions, Progress};
use crate::error::{Error, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::path::{Path, PathBuf};

/// Random ids that are drawn at a time.
const RANDOM_BLOCK: u64 = 1 << 16;

/// Where the text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Files, each one document.
    Files(Vec<PathBuf>),
    /// Built-in sentences, one document.
    Sentences {
        /// Seed of the generator.
        seed: u64,
        /// Bytes of text.
        bytes: u64,
    },
    /// Random ids, one document, from which nothing can be learned.
    Random {
        /// Seed of the generator.
        seed: u64,
        /// Number of ids.
        ids: u64,
    },
}

/// Writes the cache. Returns warnings.
pub fn build(options: &DataOptions, path: &Path, progress: &mut Progress<'_>) -> Result<Vec<String>> {
    let tokenizer = match &options.model {
        Some(folder) => Tokenizer::load(folder)?.unwrap_or_else(Tokenizer::bytes),
        None => Tokenizer::bytes(),
    };
    let tokenizer = tokenizer.or_eos(&options.config_eos);
    let mut encoder = Encoder { tokenizer: &tokenizer, vocab: options.vocab, cache: CacheWriter::create(path)? };
    let mut starts = Vec::new();
    let mut empty_files = 0;
    let origin = match &options.source {
        Source::Sentences { seed, bytes } => {
            let text = default_text(*seed, *bytes as usize);
            starts.push(0);
            encoder.push(Path::new("built-in sentences"), Piece { text: &text, offset: 0, line: 1 })?;
            Origin::Sentences { seed: *seed, bytes: *bytes }
        }
        Source::Random { seed, ids } => {
            starts.push(0);
            encoder.push_random(*seed, *ids)?;
            Origin::Random { seed: *seed, ids: *ids }
        }
        Source::Files(paths) => {
            let eos = encoder.tokenizer.eos().filter(|_| paths.len() > 1);
            let all = paths.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|data| data.len()).sum();
            let mut done = 0;
            let mut files = Vec::with_capacity(paths.len());
            for path in paths {
                let start = encoder.cache.ids();
                let FileSummary { bytes, digest } = encoder.push_file(path, &mut |read| progress(done + read, all))?;
                done += bytes;
                match encoder.cache.ids() > start {
                    true => {
                        starts.push(start);
                        encoder.close(eos)?;
                    }
                    false => empty_files += 1,
                }
                files.push(SourceFile { path: path.clone(), bytes, digest });
            }
            Origin::Files(files)
        }
    };
    let (digest, eos) = (tokenizer.digest(), tokenizer.eos());
    let description = Description { origin, tokenizer: digest, eos, vocab: options.vocab, starts, empty_files };
    encoder.cache.finish(&description)?;
    Ok(unreachable_ids(&tokenizer, options.vocab))
}

/// A tokenizer may know more ids than the embedding has rows, as long as the data reaches none of them.
fn unreachable_ids(tokenizer: &Tokenizer, vocab: u64) -> Vec<String> {
    match tokenizer.id_end() {
        end if end > vocab && !tokenizer.is_bytes() => vec![format!(
            "the tokenizer has {end} ids, the embedding only {vocab} rows; this data reaches none beyond them"
        )],
        _ => Vec::new(),
    }
}

struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    vocab: u64,
    cache: CacheWriter,
}

impl Encoder<'_> {
    /// `progress` gets the bytes of the file that are encoded.
    fn push_file(&mut self, path: &Path, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<FileSummary> {
        let tokenizer = self.tokenizer;
        let take = |piece: Piece<'_>| {
            self.push(path, piece)?;
            progress(piece.offset + piece.text.len() as u64)
        };
        text::read_document(path, |text| tokenizer.last_cut(text), take)
    }

    fn push(&mut self, path: &Path, piece: Piece<'_>) -> Result<()> {
        let ids = self.tokenizer.encode(piece.text)?;
        if ids.iter().any(|&id| u64::from(id) >= self.vocab) {
            return Err(self.too_large(path, piece)?);
        }
        self.cache.push(&ids)
    }

    /// Ids that are all about as frequent.
    fn push_random(&mut self, seed: u64, ids: u64) -> Result<()> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // The upper half of a product with a random fraction.
        let mut next = || ((u128::from(random.next_u64()) * u128::from(self.vocab)) >> 64) as u32;
        let mut left = ids;
        while left > 0 {
            let block: Vec<u32> = (0..left.min(RANDOM_BLOCK)).map(|_| next()).collect();
            self.cache.push(&block)?;
            left -= block.len() as u64;
        }
        Ok(())
    }

    fn close(&mut self, eos: Option<u32>) -> Result<()> {
        match eos {
            Some(id) if u64::from(id) >= self.vocab => {
                let expected = format!("an id below {} (rows of the embedding)", self.vocab);
                Err(Error::input("tokenizer", "end of sequence", expected, format!("id {id}")))
            }
            Some(id) => self.cache.push(&[id]),
            None => Ok(()),
        }
    }

    /// The error for the first id of `piece` that has no embedding row.
    fn too_large(&self, path: &Path, piece: Piece<'_>) -> Result<Error> {
        let places = self.tokenizer.encode_places(piece.text)?;
        let place = places.iter().find(|p| u64::from(p.id) >= self.vocab).expect("the same ids as without places");
        let line = piece.line + text::newlines(&piece.text.as_bytes()[..place.offset]);
        let offset = piece.offset + place.offset as u64;
        let what = if self.tokenizer.is_bytes() { "a byte" } else { "a token id" };
        Ok(Error::Input {
            place: path.display().to_string(),
            field: format!("line {line}, byte {offset}"),
            expected: format!("{what} below {} (rows of the embedding)", self.vocab),
            found: format!("{what} of {}", place.id),
            hint: match self.tokenizer.is_bytes() {
                true => Some("the model folder has no tokenizer files, so bytes are ids".into()),
                false => Some("tokenizer and model do not belong together, or the embedding was cut".into()),
            },
        })
    }
}

/// Refuses a cache that was made from other data, with another tokenizer or for another vocabulary. Source files that
/// are gone are not missed.
pub fn compare(options: &DataOptions, cache: &TokenCache) -> Result<()> {
    let made = cache.description();
    if made.vocab != options.vocab {
        return Err(changed("model", "rows of the embedding", &made.vocab.to_string(), &options.vocab.to_string()));
    }
    if let Some(folder) = &options.model {
        let path = folder.join("tokenizer.json");
        if let Some(now) = text::file_digest(&path)?
            && now.digest != made.tokenizer
        {
            return Err(changed(
                &path.display().to_string(),
                "content",
                "the tokenizer that the run began with",
                "another",
            ));
        }
    }
    match (&made.origin, &options.source) {
        (Origin::Files(files), Source::Files(paths)) if files.iter().map(|f| &f.path).eq(paths) => {
            files.iter().try_for_each(same_file)
        }
        (Origin::Sentences { seed, bytes }, Source::Sentences { seed: s, bytes: b }) if (seed, bytes) == (s, b) => {
            Ok(())
        }
        (Origin::Random { seed, ids }, Source::Random { seed: s, ids: n }) if (seed, ids) == (s, n) => Ok(()),
        (made, now) => Err(changed("--data", "files", &format!("{made:?}"), &format!("{now:?}"))),
    }
}

fn same_file(made: &SourceFile) -> Result<()> {
    let expected = FileSummary { bytes: made.bytes, digest: made.digest };
    match text::file_digest(&made.path)? {
        Some(now) if now != expected => {
            let say = |f: &FileSummary| format!("{} bytes with digest {:016x}", f.bytes, f.digest);
            Err(changed(&made.path.display().to_string(), "content", &say(&expected), &say(&now)))
        }
        _ => Ok(()),
    }
}

fn changed(place: &str, field: &str, expected: &str, found: &str) -> Error {
    Error::Input {
        place: place.into(),
        field: field.into(),
        expected: format!("what the run began with ({expected})"),
        found: found.into(),
        hint: Some("put it back, or start a new run".into()),
    }
}
