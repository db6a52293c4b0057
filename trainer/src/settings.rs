//! Every setting of a run, resolved: what `settings.toml` in the run folder holds. The command's flags and TOML file
//! become this; nothing below it knows of flags.
//!
//! The names in `settings.toml` are those of the flags, so that the file can be given to `mt train` again.
//!
//! Terms. *Identity*: the settings that decide the numbers. A commit's note holds them, and a resume with other values
//! is refused. The rest (where pages lie, budgets, threads, how often to commit) may change between two starts of a
//! run.

use crate::target::{Gpu, Precision, Target};
use mt_engine::{Backend, DeviceId, DirectIo};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Most steps and epochs of a run. With `BATCH_MAX`, every product of them is far from 64 bits.
pub const STEPS_MAX: u64 = 1_000_000_000_000;
/// Most sequences of a step: the program of a step has instructions for each micro-batch.
pub const BATCH_MAX: u64 = 65_536;
/// Most tokens of a sequence.
pub const SEQ_LEN_MAX: u64 = 1 << 24;

/// Shape of the learning rate after the warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LrSchedule {
    /// The peak rate to the end.
    Constant,
    /// A straight line from the peak to the floor at the last step.
    Linear,
    /// Half a cosine from the peak to the floor at the last step.
    Cosine,
}

/// Length of the warm-up.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "WarmupText", into = "WarmupText")]
pub enum Warmup {
    /// Optimizer steps.
    Steps(u64),
    /// Percent of the run's steps.
    Percent(f64),
}

/// What of a layer's intermediates is kept for backward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// Only the layer's input is kept.
    All,
    /// Everything is kept.
    None,
    /// A level for each layer: whatever is predicted to be fastest.
    Auto,
}

/// What survives a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Commits: the run resumes after any crash.
    Full,
    /// Nothing: a crash or a stop loses the run; half the disk.
    None,
}

/// What computes. In a file: `cpu` or `cuda:N`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// A GPU, by its number.
    Cuda(u8),
}

impl Device {
    fn is_cpu(&self) -> bool {
        *self == Device::Cpu
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Device::Cpu => write!(f, "cpu"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl std::str::FromStr for Device {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Device, &'static str> {
        match (text, text.strip_prefix("cuda:").and_then(|number| number.parse().ok())) {
            ("cpu", _) => Ok(Device::Cpu),
            ("cuda", _) => Ok(Device::Cuda(0)),
            (_, Some(number)) => Ok(Device::Cuda(number)),
            _ => Err("cpu, cuda or cuda:N"),
        }
    }
}

/// A number or "auto".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto<T> {
    /// Decided by the program.
    Auto,
    /// Decided by the user.
    #[serde(untagged)]
    Value(T),
}

impl<T> Auto<T> {
    /// What a settings file without the setting means.
    fn unset() -> Auto<T> {
        Auto::Auto
    }

    fn is_auto(&self) -> bool {
        matches!(self, Auto::Auto)
    }
}

impl<T: Copy> Auto<T> {
    /// The user's value, if there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Auto::Auto => None,
            Auto::Value(value) => Some(value),
        }
    }
}

/// The settings. A comment says "may change" where a setting is not part of the identity.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Model folder; None: the built-in default model. The path may change, the model may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<PathBuf>,
    /// Dimensions of a published model in place of a folder, by their name; its weights are random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Text files; empty: the built-in sentences. The paths may change, the tokens may not.
    #[serde(default)]
    pub data: Vec<PathBuf>,
    /// Random ids in place of text: to measure speed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
    /// Store directories; empty: `store` in the run folder (may change).
    #[serde(default)]
    pub store: Vec<PathBuf>,
    /// What to do where a store's file system refuses direct I/O (may change).
    #[serde(default, with = "as_text")]
    pub direct_io: DirectIo,
    /// How pages are moved to and from the store (may change).
    #[serde(default, with = "as_text")]
    pub io: Backend,
    /// What computes (its number may change, its kind may not).
    #[serde(default, skip_serializing_if = "Device::is_cpu", with = "as_text")]
    pub device: Device,
    /// What products compute in.
    #[serde(default, skip_serializing_if = "is_fp32")]
    pub precision: Precision,
    /// VRAM of the whole process in bytes (may change).
    #[serde(default = "Auto::unset", skip_serializing_if = "Auto::is_auto")]
    pub vram: Auto<u64>,
    /// RAM of the whole process in bytes (may change).
    pub ram: Auto<u64>,
    /// Optimizer steps of the whole run; None: decided by `epochs` (may change where the learning rate stays).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Passes over the data of the whole run; with `steps` too, the first reached ends the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Sequences per optimizer step.
    pub batch: u64,
    /// Sequences per micro-batch.
    pub micro_batch: Auto<u64>,
    /// Tokens of a row.
    pub seq_len: u64,
    /// Peak learning rate.
    pub lr: f64,
    /// Shape of the learning rate.
    pub lr_schedule: LrSchedule,
    /// Length of the warm-up.
    pub warmup: Warmup,
    /// Floor of the learning rate as a share of the peak.
    pub min_lr_ratio: f64,
    /// Largest global gradient norm; None: no clipping.
    #[serde(with = "or_off")]
    pub max_grad_norm: Option<f64>,
    /// Decoupled weight decay, on tensors of two or more dimensions.
    pub weight_decay: f64,
    /// Decay rates of the first and second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Seed of the initialization and of the order of rows.
    pub seed: u64,
    /// CPU threads (may change).
    pub threads: u64,
    /// Rows in a seeded order, another in each epoch. In the file: `no-shuffle`, its opposite.
    #[serde(rename = "no-shuffle", with = "inverted")]
    pub shuffle: bool,
    /// What is kept for backward (may change).
    pub recompute: Recompute,
    /// Steps between commits (may change).
    pub checkpoint_every: Auto<u64>,
    /// What survives a crash.
    pub durability: Durability,
    /// Updates may run in backward although nothing survives a gradient that is not finite (may change).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_nan_guard: bool,
    /// Elements of a page.
    pub page: Auto<u64>,
    /// Space for the store on all its volumes in bytes (may change).
    #[serde(default = "Auto::unset")]
    pub disk: Auto<u64>,
    /// Bytes that the store may write over its life (may change); None: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_writes: Option<u64>,
}

/// Names of the settings that may change between two starts of a run. `steps` is judged apart.
const MAY_CHANGE: [&str; 14] = [
    "model",
    "data",
    "store",
    "direct-io",
    "io",
    "vram",
    "ram",
    "steps",
    "threads",
    "recompute",
    "checkpoint-every",
    "no-nan-guard",
    "disk",
    "max-writes",
];

impl Settings {
    /// The settings that decide the numbers, by name.
    pub fn identity(&self) -> Map<String, Value> {
        let value = serde_json::to_value(self).expect("settings hold only numbers, text and lists");
        let Value::Object(mut map) = value else { unreachable!("settings are a struct") };
        map.retain(|name, _| !MAY_CHANGE.contains(&name.as_str()));
        if let Some(device) = map.get_mut("device") {
            *device = Value::from("cuda");
        }
        map
    }

    /// What computes, and in what.
    pub fn target(&self) -> Target {
        match self.device {
            Device::Cpu => Target::Cpu,
            Device::Cuda(number) => Target::Gpu(Gpu { device: DeviceId(number), precision: self.precision }),
        }
    }
}

fn is_fp32(precision: &Precision) -> bool {
    *precision == Precision::Fp32
}

/// `warmup` in a file: a number of steps, or text like "5%".
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum WarmupText {
    Steps(u64),
    Text(String),
}

impl From<Warmup> for WarmupText {
    fn from(warmup: Warmup) -> WarmupText {
        match warmup {
            Warmup::Steps(steps) => WarmupText::Steps(steps),
            Warmup::Percent(percent) => WarmupText::Text(format!("{percent}%")),
        }
    }
}

impl TryFrom<WarmupText> for Warmup {
    type Error = String;

    fn try_from(text: WarmupText) -> Result<Warmup, String> {
        match text {
            WarmupText::Steps(steps) => Ok(Warmup::Steps(steps)),
            WarmupText::Text(text) => text.parse(),
        }
    }
}

impl std::str::FromStr for Warmup {
    type Err = String;

    /// Steps ("20") or a percentage of the run ("5%").
    fn from_str(text: &str) -> Result<Warmup, String> {
        let expected = || format!("expected steps (20) or a percentage of the run (5%), found \"{text}\"");
        match text.strip_suffix('%') {
            None => text.parse().map(Warmup::Steps).map_err(|_| expected()),
            Some(number) => match number.trim().parse::<f64>() {
                Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Warmup::Percent(percent)),
                _ => Err(expected()),
            },
        }
    }
}

/// A setting of the engine, which has a text of its own.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err = &'static str>,
        D: Deserializer<'de>,
    {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|expected| D::Error::custom(format!("expected {expected}, found \"{text}\"")))
    }
}

/// An optional number whose absence is written "off": TOML has no null.
mod or_off {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum NumberOrOff {
        Number(f64),
        Off(String),
    }

    pub fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(number) => NumberOrOff::Number(*number),
            None => NumberOrOff::Off("off".to_owned()),
        }
        .serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        match NumberOrOff::deserialize(deserializer)? {
            NumberOrOff::Number(number) => Ok(Some(number)),
            NumberOrOff::Off(text) if text == "off" => Ok(None),
            NumberOrOff::Off(text) => Err(D::Error::custom(format!("expected a number or \"off\", found \"{text}\""))),
        }
    }
}

/// A switch that the file names by its opposite, as the flag does.
mod inverted {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &bool, serializer: S) -> Result<S::Ok, S::Error> {
        (!value).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
        Ok(!bool::deserialize(deserializer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            model: None,
            shape: None,
            synthetic: false,
            data: vec![PathBuf::from("/data/a.txt")],
            store: Vec::new(),
            direct_io: DirectIo::Required,
            io: Backend::Pool,
            device: Device::Cpu,
            precision: Precision::Fp32,
            vram: Auto::Auto,
            ram: Auto::Value(64 << 20),
            steps: Some(60),
            epochs: None,
            batch: 4,
            micro_batch: Auto::Auto,
            seq_len: 128,
            lr: 1e-3,
            lr_schedule: LrSchedule::Cosine,
            warmup: Warmup::Percent(5.0),
            min_lr_ratio: 0.1,
            max_grad_norm: None,
            weight_decay: 0.1,
            betas: (0.9, 0.95),
            eps: 1e-8,
            seed: 1,
            threads: 2,
            shuffle: true,
            recompute: Recompute::Auto,
            checkpoint_every: Auto::Value(10),
            durability: Durability::Full,
            no_nan_guard: false,
            page: Auto::Auto,
            disk: Auto::Auto,
            max_writes: None,
        }
    }

    #[test]
    fn file_gives_the_settings_back() {
        let text = toml::to_string(&settings()).unwrap();
        assert_eq!(toml::from_str::<Settings>(&text).unwrap(), settings());
        assert!(text.contains("warmup = \"5%\""), "{text}");
    }

    #[test]
    fn a_gpu_is_named_in_the_file_and_a_processor_is_not() {
        let on_gpu = Settings { device: Device::Cuda(1), precision: Precision::Bf16, ..settings() };
        let text = toml::to_string(&on_gpu).unwrap();
        assert!(text.contains("device = \"cuda:1\"") && text.contains("precision = \"bf16\""), "{text}");
        assert_eq!(toml::from_str::<Settings>(&text).unwrap(), on_gpu);
        let text = toml::to_string(&settings()).unwrap();
        assert!(["device", "precision", "vram"].iter().all(|name| !text.contains(&format!("{name} ="))), "{text}");
        assert!(["cuda:", "cuda:x", "gpu", "cuda:999"].iter().all(|text| text.parse::<Device>().is_err()));
    }

    #[test]
    fn file_has_the_names_of_the_flags() {
        let text = toml::to_string(&settings()).unwrap();
        assert!(text.contains("no-shuffle = false"), "{text}");
        assert!(text.contains("max-grad-norm = \"off\""), "{text}");
        assert!(text.contains("micro-batch = \"auto\""), "{text}");
        assert!(text.contains("direct-io = \"required\"") && text.contains("io = \"pool\""), "{text}");
    }

    #[test]
    fn settings_that_came_later_may_be_missing_in_a_file() {
        let text = toml::to_string(&settings()).unwrap();
        let older: String = text
            .lines()
            .filter(|line| !line.starts_with("io =") && !line.starts_with("direct-io ="))
            .map(|line| format!("{line}\n"))
            .collect();
        let read = toml::from_str::<Settings>(&older).unwrap();
        assert_eq!((read.direct_io, read.io), (DirectIo::Preferred, Backend::Auto));
        let error = toml::from_str::<Settings>(&text.replace("\"pool\"", "\"puddle\"")).unwrap_err().to_string();
        assert!(error.contains("expected auto"), "{error}");
    }

    #[test]
    fn identity_leaves_out_what_may_change() {
        let mut other = settings();
        other.ram = Auto::Auto;
        other.threads = 7;
        other.recompute = Recompute::All;
        other.store = vec![PathBuf::from("/elsewhere")];
        (other.direct_io, other.io) = (DirectIo::Preferred, Backend::Auto);
        assert_eq!(settings().identity(), other.identity());
        other.lr = 2e-3;
        assert_ne!(settings().identity(), other.identity());
        let on_gpu = |device, precision| Settings { device, precision, vram: Auto::Value(1), ..settings() }.identity();
        assert_eq!(on_gpu(Device::Cuda(0), Precision::Fp32), on_gpu(Device::Cuda(1), Precision::Fp32));
        assert_ne!(on_gpu(Device::Cuda(0), Precision::Fp32), on_gpu(Device::Cuda(0), Precision::Bf16));
        assert_ne!(on_gpu(Device::Cuda(0), Precision::Fp32), settings().identity());
        assert_eq!(on_gpu(Device::Cpu, Precision::Fp32), settings().identity());
    }

    #[test]
    fn warmup_refuses_other_text() {
        assert_eq!("5%".parse(), Ok(Warmup::Percent(5.0)));
        assert_eq!("12".parse(), Ok(Warmup::Steps(12)));
        for bad in ["", "x", "-1", "101%", "5 percent", "NaN%"] {
            assert!(bad.parse::<Warmup>().is_err(), "{bad}");
        }
    }
}
