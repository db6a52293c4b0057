//! From text to what a step trains on: text files, token ids in a cache, rows, the order of rows, batches.
//!
//! ```text
//! files -> text (documents in pieces) -> tokenizer (ids) -> cache (RUN/tokens.bin) -> rows + order -> Batch
//! ```
//!
//! What it is not: it knows nothing of the model beyond the number of rows of its embedding and its end of
//! sequence.
//!
//! Terms: a *document* is the text of one file; a *row* is `seq_len` consecutive ids. Invariants: every id is below the
//! number of embedding rows before the first step runs; a step's batch is a function of settings, data and step alone.

mod build;
pub mod cache;
pub mod order;
pub mod pieces;
pub mod rows;
pub mod sentences;
pub mod text;
pub mod tokenizer;

pub use build::Source;
pub use order::RowOrder;
pub use tokenizer::Tokenizer;

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::model::ModelConfig;
use crate::settings::Settings;
use cache::{Origin, TokenCache};
use std::path::{Path, PathBuf};

/// Steps that random ids last for before they come again.
const RANDOM_STEPS: u64 = 64;

/// Name of the token cache in the run folder.
pub const CACHE_NAME: &str = "tokens.bin";

/// What data to train on, and how.
#[derive(Clone, Debug)]
pub struct DataOptions {
    /// Where the text comes from.
    pub source: Source,
    /// The model's folder, with or without tokenizer files; None: bytes are ids.
    pub model: Option<PathBuf>,
    /// End-of-sequence ids that the model's configuration names.
    pub config_eos: Vec<u32>,
    /// Rows of the embedding.
    pub vocab: u64,
    /// Ids of a row.
    pub seq_len: u64,
    /// Rows of a step.
    pub batch: u64,
    /// Rows of a micro-batch; the last of a step may have fewer.
    pub rows_per_micro: u64,
    /// Seed of the rows' order.
    pub seed: u64,
    /// Each epoch in an order of its own.
    pub shuffle: bool,
    /// The run folder, which holds or will hold the token cache.
    pub run: PathBuf,
}

impl DataOptions {
    /// What the settings of a run say. `rows_per_micro` is resolved by then, so it is given apart.
    pub fn new(settings: &Settings, config: &ModelConfig, rows_per_micro: u64, run: &Path) -> DataOptions {
        let seed = settings.seed;
        let source = match settings.data.is_empty() {
            _ if settings.synthetic => Source::Random { seed, ids: settings.batch * RANDOM_STEPS * settings.seq_len },
            true => Source::Sentences { seed, bytes: crate::default_model::TEXT_BYTES },
            false => Source::Files(settings.data.clone()),
        };
        DataOptions {
            source,
            model: settings.model.clone(),
            config_eos: config.eos.clone(),
            vocab: config.vocab as u64,
            seq_len: settings.seq_len,
            batch: settings.batch,
            rows_per_micro,
            seed: settings.seed,
            shuffle: settings.shuffle,
            run: run.into(),
        }
    }
}

/// What is told of reading text: bytes done and all.
pub type Progress<'a> = dyn FnMut(u64, u64) -> Result<()> + 'a;

/// What the data came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataReport {
    /// Documents with text.
    pub documents: u64,
    /// Files without text, left out.
    pub empty_files: u64,
    /// All ids.
    pub ids: u64,
    /// Complete rows with something to learn.
    pub rows: u64,
    /// Complete rows of documents of one id, left out: no id in them is followed by another of its document.
    pub skipped_rows: u64,
    /// Ids of the last, incomplete row, left out.
    pub dropped_ids: u64,
    /// Whether ids are bytes, for want of a tokenizer.
    pub is_bytes: bool,
    /// Token that closes each document; None with a single document or without such a token.
    pub eos: Option<u32>,
    /// Things to tell the user that do not stop the run.
    pub warnings: Vec<String>,
}

/// The data of a run, ready to be trained on.
#[derive(Debug)]
pub struct Data {
    cache: TokenCache,
    order: RowOrder,
    /// Rows that are left out, rising.
    skipped: Vec<u64>,
    seq_len: u64,
    batch: u64,
    rows_per_micro: u64,
    report: DataReport,
}

impl Data {
    /// Opens the run's token cache, after comparing what it was made from with what is there now; makes it if there is
    /// none. `progress` gets the bytes of text read and all; its error ends the reading.
    ///
    /// # Errors
    /// `Input` (with file and offset or line) for text that is not UTF-8, an id without an embedding row, less than a
    /// row of data, or data or a tokenizer that changed since the cache was made.
    pub fn open(options: &DataOptions, progress: &mut Progress<'_>) -> Result<Data> {
        assert!(options.batch > 0 && options.rows_per_micro > 0, "settings are checked");
        let path = options.run.join(CACHE_NAME);
        let (cache, warnings) = match TokenCache::open(&path)? {
            Some(cache) => {
                build::compare(options, &cache)?;
                (cache, Vec::new())
            }
            None => {
                let warnings = build::build(options, &path, progress)?;
                (TokenCache::open(&path)?.expect("just written"), warnings)
            }
        };
        let (report, skipped) = report(options, &cache, warnings)?;
        let order = RowOrder::new(report.rows, options.seed, options.shuffle);
        let DataOptions { seq_len, batch, rows_per_micro, .. } = *options;
        Ok(Data { cache, order, skipped, seq_len, batch, rows_per_micro, report })
    }

    /// What the data came to.
    pub fn report(&self) -> &DataReport {
        &self.report
    }

    /// XXH3-64 of all ids.
    pub fn digest(&self) -> u64 {
        self.cache.digest()
    }

    /// Which rows steps take.
    pub fn order(&self) -> &RowOrder {
        &self.order
    }

    /// What step `step` (counted from 1) trains on. Reads its rows from the cache.
    ///
    /// # Errors
    /// `Io`.
    pub fn batch(&self, step: u64) -> Result<Batch> {
        let rows = self.order.rows_of_step(step, self.batch);
        let mut micro = Vec::with_capacity(rows.len().div_ceil(self.rows_per_micro as usize));
        for group in rows.chunks(self.rows_per_micro as usize) {
            let mut builder = rows::Builder::new(self.seq_len as usize, group.len());
            for &(_, place) in group {
                let first = nth_kept(&self.skipped, place) * self.seq_len;
                let ids = self.cache.read(first, self.seq_len as usize)?;
                builder.push(&ids, &rows::starts_within(&self.cache.description().starts, first, self.seq_len));
            }
            micro.push(builder.finish());
        }
        Ok(Batch { micro })
    }
}

/// The row number `place` of those that are not skipped.
fn nth_kept(skipped: &[u64], place: u64) -> u64 {
    // Skipped row i has `skipped[i] - i` kept rows before it, which rises with i.
    let mut range = 0..skipped.len();
    while !range.is_empty() {
        let middle = range.start + range.len() / 2;
        if skipped[middle] - middle as u64 <= place { range.start = middle + 1 } else { range.end = middle }
    }
    place + range.start as u64
}

/// What the data came to, and the rows that are left out.
fn report(options: &DataOptions, cache: &TokenCache, mut warnings: Vec<String>) -> Result<(DataReport, Vec<u64>)> {
    let description = cache.description();
    let (ids, documents) = (cache.ids(), description.starts.len() as u64);
    let rows = ids / options.seq_len;
    if rows == 0 {
        let files = match &description.origin {
            Origin::Files(files) => format!(", files: {}, empty: {}", files.len(), description.empty_files),
            Origin::Sentences { .. } | Origin::Random { .. } => String::new(),
        };
        return Err(Error::Input {
            place: "--data".into(),
            field: "size".into(),
            expected: format!("at least one row of {} ids", options.seq_len),
            found: format!("{ids} ids (documents: {documents}{files})"),
            hint: (ids >= 2).then(|| format!("more data, or --seq-len {ids}")),
        });
    }
    let skipped = rows::without_targets(&description.starts, rows, options.seq_len);
    let rows = rows - skipped.len() as u64;
    if rows == 0 {
        let expected = "an id that is followed by another of its document";
        return Err(Error::input("--data", "documents", expected, format!("{documents} documents of one id")));
    }
    if !skipped.is_empty() {
        let what = "rows hold only documents of one id, from which nothing can be learned: left out";
        warnings.push(format!("{} of {} {what}", skipped.len(), rows + skipped.len() as u64));
    }
    let report = DataReport {
        documents,
        empty_files: description.empty_files,
        ids,
        rows,
        skipped_rows: skipped.len() as u64,
        dropped_ids: ids % options.seq_len,
        is_bytes: description.tokenizer == Tokenizer::bytes().digest(),
        eos: description.eos.filter(|_| documents > 1),
        warnings,
    };
    Ok((report, skipped))
}

#[cfg(test)]
mod tests;
