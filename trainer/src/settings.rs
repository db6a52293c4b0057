//! Every setting of a run, resolved: what `settings.toml` in the run folder holds. The command's flags and TOML file
//! become this; nothing below it knows of flags.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Shape of the learning rate after the warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LrSchedule { Constant, Linear, Cosine }

/// Length of the warm-up.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Warmup { Steps(u64), Percent(f64) }

/// What of a layer's intermediates is kept for backward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recompute { /// Only the layer's input is kept.
    All, /// Everything is kept.
    None, /// `None` if it fits without streaming more, else `All`.
    Auto }

/// What survives a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability { Full, None }

/// A number or "auto".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto<T> { Auto, #[serde(untagged)] Value(T) }

/// The settings. Identity: a resume with other values of these is refused, except where a comment says "may change".
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Model folder; None: the built-in default model.
    pub model: Option<PathBuf>,
    /// Text files; empty: the built-in sentences.
    pub data: Vec<PathBuf>,
    /// Store directories (may change: `mt resume --store OLD=NEW`).
    pub store: Vec<PathBuf>,
    /// RAM of the whole process in bytes (may change).
    pub ram: Auto<u64>,
    pub steps: Option<u64>,
    pub epochs: Option<u64>,
    /// Sequences per optimizer step.
    pub batch: u64,
    /// Sequences per micro-batch.
    pub micro_batch: Auto<u64>,
    /// Tokens of a row.
    pub seq_len: u64,
    pub lr: f64,
    pub lr_schedule: LrSchedule,
    pub warmup: Warmup,
    pub min_lr_ratio: f64,
    /// None: off.
    pub max_grad_norm: Option<f64>,
    pub weight_decay: f64,
    pub betas: (f64, f64),
    pub eps: f64,
    pub seed: u64,
    /// CPU threads (may change).
    pub threads: u64,
    pub shuffle: bool,
    /// May change.
    pub recompute: Recompute,
    /// Steps between commits (may change).
    pub checkpoint_every: Auto<u64>,
    pub durability: Durability,
    /// Elements of a page.
    pub page: Auto<u64>,
}
