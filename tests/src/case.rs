//! A golden case: a folder with a small model, two micro-batches and the numbers that training on them must give. See
//! `golden/README.md` for the files.

use crate::tensors::Tensors;
use mt_trainer::batch::{Batch, MicroBatch, NO_TARGET};
use mt_trainer::lr::LearningRate;
use mt_trainer::settings::{LrSchedule, Warmup};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The cases that must pass: never "not yet".
pub const REQUIRED: [&str; 5] = ["llama-gqa", "llama3-rope-tied", "mistral-swa", "qwen2-bias", "qwen3-qknorm"];

/// One micro-batch with the mask that the case came with.
#[derive(Clone, Debug)]
pub struct Micro {
    /// As the trainer takes it.
    pub batch: MicroBatch,
    /// Which tokens are not padding \[T].
    pub real: Vec<bool>,
}

/// Rate, loss and norm of one step.
#[derive(Clone, Copy, Debug)]
pub struct StepNumbers {
    /// Learning rate used in the step.
    pub lr: f64,
    /// Loss per target before the step's update.
    pub loss: f64,
    /// Norm of all gradients before clipping.
    pub grad_norm: f64,
}

/// A folder of numbers.
pub struct Case {
    /// Name of the folder.
    pub name: String,
    /// The folder.
    pub dir: PathBuf,
    /// The micro-batches of every step.
    pub micro: Vec<Micro>,
    /// `expected.json`.
    pub expected: Value,
    /// `expected.safetensors`.
    pub numbers: Tensors,
    /// `model.safetensors`.
    pub start: Tensors,
}

/// The folder of cases: `MT_GOLDEN`, or the one in the repository.
pub fn golden_dir() -> PathBuf {
    std::env::var_os("MT_GOLDEN").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"), PathBuf::from)
}

/// Folders below `dir` that hold `batch.json` and `config.json`, by name.
pub fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).map(|e| e.flatten().map(|e| e.path()).collect()).unwrap_or_default();
    let is_case = |p: &PathBuf| p.join("batch.json").is_file() && p.join("config.json").is_file();
    let mut found: Vec<PathBuf> = Vec::into_iter(entries).filter(is_case).collect();
    found.sort();
    found
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} is a number"))
}

fn rows(value: &Value) -> Vec<Vec<i64>> {
    let row = |r: &Value| r.as_array().expect("a row").iter().map(|x| x.as_i64().expect("an integer")).collect();
    value.as_array().expect("rows").iter().map(row).collect()
}

/// Labels belong to their own position in the file; the trainer takes them shifted.
fn micro(value: &Value) -> Micro {
    let (ids, labels, mask) = (rows(&value["input_ids"]), rows(&value["labels"]), rows(&value["attention_mask"]));
    let (count, seq) = (ids.len(), ids[0].len());
    let shift = |row: &Vec<i64>| {
        let target = |label: &i64| u32::try_from(*label).unwrap_or(NO_TARGET);
        row[1..].iter().map(target).chain([NO_TARGET]).collect::<Vec<u32>>()
    };
    let batch = MicroBatch {
        rows: count,
        seq,
        ids: ids.concat().into_iter().map(|i| i as u32).collect(),
        targets: labels.iter().flat_map(shift).collect(),
        positions: (0..count).flat_map(|_| 0..seq as u32).collect(),
        document: vec![0; count * seq],
    };
    Micro { batch, real: mask.concat().into_iter().map(|m| m == 1).collect() }
}

impl Case {
    /// Reads a folder. Panics with the file's name if one is missing or broken: the cases are part of the test.
    pub fn read(dir: &Path) -> Case {
        let name = dir.file_name().and_then(|n| n.to_str()).expect("the folder has a name").to_owned();
        let batch = json(&dir.join("batch.json"));
        Case {
            name,
            dir: dir.to_owned(),
            micro: batch["micro_batches"].as_array().expect("micro_batches").iter().map(micro).collect(),
            expected: json(&dir.join("expected.json")),
            numbers: Tensors::read(&dir.join("expected.safetensors")),
            start: Tensors::read(&dir.join("model.safetensors")),
        }
    }

    /// A case of this name in the repository.
    pub fn named(name: &str) -> Case {
        Case::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name))
    }

    /// All micro-batches as one step's batch.
    pub fn batch(&self) -> Batch {
        Batch { micro: self.micro.iter().map(|m| m.batch.clone()).collect() }
    }

    /// Name and value of a hyperparameter.
    pub fn hyper(&self, key: &str) -> f64 {
        number(&self.expected["hyperparameters"], key)
    }

    /// Rate, loss and norm of each step, in order.
    pub fn steps(&self) -> Vec<StepNumbers> {
        let read =
            |s: &Value| StepNumbers { lr: number(s, "lr"), loss: number(s, "loss"), grad_norm: number(s, "grad_norm") };
        self.expected["steps"].as_array().expect("steps").iter().map(read).collect()
    }

    /// (targets, sum, mean) of each micro-batch's loss before training.
    pub fn micro_losses(&self) -> Vec<(u64, f64, f64)> {
        let read = |m: &Value| (m["targets"].as_u64().expect("targets"), number(m, "sum"), number(m, "mean"));
        self.expected["micro_batch_loss"].as_array().expect("micro_batch_loss").iter().map(read).collect()
    }

    /// The schedule that the hyperparameters describe.
    pub fn learning_rate(&self) -> LearningRate {
        let warmup = Warmup::Steps(self.hyper("warmup_steps") as u64);
        let total = self.hyper("total_steps") as u64;
        LearningRate::new(self.hyper("lr"), LrSchedule::Cosine, warmup, self.hyper("min_lr_ratio"), total)
    }

    /// The steps after which the case gives parameters: K of every `paramK.NAME`, ascending.
    pub fn param_steps(&self) -> Vec<usize> {
        let step = |name: &String| name.strip_prefix("param")?.split_once('.')?.0.parse().ok();
        let mut steps: Vec<usize> = self.numbers.names().filter_map(step).collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// The part of `expected.safetensors` with this prefix (`grad`, `param1`), by the tensor's own name.
    pub fn part(&self, prefix: &str) -> Vec<(&str, &[f32])> {
        let strip = |name: &'_ String| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
        let names = self.numbers.names().filter(|n| strip(n));
        names.map(|n| (&n[prefix.len() + 1..], self.numbers.values(n))).collect()
    }
}
