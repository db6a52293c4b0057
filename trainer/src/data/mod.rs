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
        let source = match settings.data.is_empty() {
            true => Source::Sentences { seed: settings.seed, bytes: crate::default_model::TEXT_BYTES },
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

/// What the data came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataReport {
    /// Documents with text.
    pub documents: u64,
    /// Files without text, left out.
    pub empty_files: u64,
    /// All ids.
    pub ids: u64,
    /// Complete rows.
    pub rows: u64,
    /// Ids of the last, incomplete row, left out.
    pub dropped_ids: u64,
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
    seq_len: u64,
    batch: u64,
    rows_per_micro: u64,
    report: DataReport,
}

impl Data {
    /// Opens the run's token cache, after comparing what it was made from with what is there now; makes it if there is
    /// none.
    ///
    /// # Errors
    /// `Input` (with file and offset or line) for text that is not UTF-8, an id without an embedding row, less than a
    /// row of data, or data or a tokenizer that changed since the cache was made.
    pub fn open(options: &DataOptions) -> Result<Data> {
        assert!(options.batch > 0 && options.rows_per_micro > 0, "settings are checked");
        let path = options.run.join(CACHE_NAME);
        let (cache, warnings) = match TokenCache::open(&path)? {
            Some(cache) => {
                build::compare(options, &cache)?;
                (cache, Vec::new())
            }
            None => {
                let warnings = build::build(options, &path)?;
                (TokenCache::open(&path)?.expect("just written"), warnings)
            }
        };
        let report = report(options, &cache, warnings)?;
        let order = RowOrder::new(report.rows, options.seed, options.shuffle);
        let DataOptions { seq_len, batch, rows_per_micro, .. } = *options;
        Ok(Data { cache, order, seq_len, batch, rows_per_micro, report })
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

    /// Steps of the run's batch that take every row at least `epochs` times; the last is filled up with rows of the
    /// epoch after.
    pub fn steps_for_epochs(&self, epochs: u64) -> u64 {
        self.order.steps_for_epochs(epochs, self.batch)
    }

    /// What step `step` (counted from 1) trains on. Reads its rows from the cache.
    ///
    /// # Errors
    /// `Io` if reading fails; `Input` if no position of the step has a target.
    pub fn batch(&self, step: u64) -> Result<Batch> {
        let rows = self.order.rows_of_step(step, self.batch);
        let mut micro = Vec::with_capacity(rows.len().div_ceil(self.rows_per_micro as usize));
        for group in rows.chunks(self.rows_per_micro as usize) {
            let mut builder = rows::Builder::new(self.seq_len as usize, group.len());
            for &(_, row) in group {
                let first = row * self.seq_len;
                let ids = self.cache.read(first, self.seq_len as usize)?;
                builder.push(&ids, &rows::starts_within(&self.cache.description().starts, first, self.seq_len));
            }
            micro.push(builder.finish());
        }
        let batch = Batch { micro };
        if batch.target_count() == 0 {
            let expected = "a position that predicts the next of its document";
            return Err(Error::input("data", format!("step {step}"), expected, "only documents of one id"));
        }
        Ok(batch)
    }
}

fn report(options: &DataOptions, cache: &TokenCache, warnings: Vec<String>) -> Result<DataReport> {
    let description = cache.description();
    let (ids, documents) = (cache.ids(), description.starts.len() as u64);
    let rows = ids / options.seq_len;
    if rows == 0 {
        let files = match &description.origin {
            Origin::Files(files) => format!(", {} files of which {} empty", files.len(), description.empty_files),
            Origin::Sentences { .. } => String::new(),
        };
        return Err(Error::Input {
            place: "--data".into(),
            field: "size".into(),
            expected: format!("at least one row of {} ids", options.seq_len),
            found: format!("{ids} ids ({documents} documents{files})"),
            hint: (ids >= 2).then(|| format!("more data, or --seq-len {ids}")),
        });
    }
    Ok(DataReport {
        documents,
        empty_files: description.empty_files,
        ids,
        rows,
        dropped_ids: ids % options.seq_len,
        eos: description.eos.filter(|_| documents > 1),
        warnings,
    })
}

#[cfg(test)]
mod tests;
