//! What a run computes on: configuration, tensors, data, length and learning rate, from the settings and the run
//! folder.
//!
//! The folder is filled here step by step; each part is made again if it is missing, so that a start that was killed in
//! between goes on where it was.

use super::command_line::CommandLine;
use super::files;
use super::folder::RunFolder;
use super::observer::{Event, Observer};
use crate::checkpoint::{self, Source, SourceRecord};
use crate::data::{Data, DataOptions, RowOrder, Tokenizer};
use crate::default_model;
use crate::error::{Error, Result};
use crate::input;
use crate::lr::LearningRate;
use crate::model::{Manifest, ModelConfig};
use crate::settings::{Auto, STEPS_MAX, Settings};
use crate::step::{Shapes, gpu_micro_batch_auto, micro_batch_auto};
use crate::target::Target;
use mt_kernels::Cpu;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The flag that names folders for pages, and what it takes.
pub(super) const STORE: &str = "--store";
pub(super) const STORE_EXPECTED: &str = "a folder for pages";

/// A model's configuration and where its first weights come from.
pub(super) struct Model {
    pub name: String,
    pub config: ModelConfig,
    pub manifest: Manifest,
}

/// What a run computes on.
pub(super) struct Inputs {
    pub model: Model,
    pub data: Data,
    pub shapes: Shapes,
    pub micro_batch: u64,
    pub total_steps: u64,
    pub lr: LearningRate,
    pub tokens_digest: String,
}

/// Reads the model that the settings name, before there is a run folder. `command` is the one that the settings come
/// from, if one does.
pub(super) fn read_model(settings: &Settings, command: Option<&CommandLine>) -> Result<Model> {
    let config = read_config(settings)?;
    let name = match &settings.model {
        Some(folder) => {
            // Here rather than in the run's copy, which has not all files, and whose folder goes with a refusal.
            Tokenizer::load(folder)?;
            folder.file_name().map_or("model".to_owned(), |name| name.to_string_lossy().into_owned())
        }
        None => settings.shape.clone().unwrap_or_else(|| "default".to_owned()),
    };
    let manifest = Manifest::new(&config);
    check_length(settings, &config, command)?;
    Ok(Model { name, config, manifest })
}

/// Reads the dimensions of the model that the settings name.
pub(super) fn read_config(settings: &Settings) -> Result<ModelConfig> {
    match &settings.model {
        Some(folder) => {
            require_model(folder)?;
            ModelConfig::read(&folder.join("config.json"))
        }
        None => match settings.shape.as_deref().and_then(crate::model::shapes::find) {
            Some(shape) => ModelConfig::parse(&shape.config_json(), Path::new(shape.name)),
            None => ModelConfig::parse(default_model::CONFIG_JSON, Path::new("built-in config.json")),
        },
    }
}

/// The first weights of the model that the settings name.
pub(super) fn first_weights(settings: &Settings, model: &Model) -> Result<Source> {
    match &settings.model {
        Some(folder) => Source::open(folder, &model.config, &model.manifest, settings.seed),
        None => Ok(Source::random(Path::new("built-in"), &model.config, &model.manifest, settings.seed)),
    }
}

/// Refuses folders for pages that something else is in the way of, and one that is named twice.
pub(super) fn check_stores(stores: &[PathBuf]) -> Result<()> {
    let mut known = Vec::with_capacity(stores.len());
    for store in stores {
        input::folder_place(store, STORE, STORE_EXPECTED)?;
        let real = fs::canonicalize(store).or_else(|_| std::path::absolute(store)).unwrap_or_else(|_| store.clone());
        if known.contains(&real) {
            return Err(Error::input(store.display().to_string(), STORE, STORE_EXPECTED, "the same folder twice"));
        }
        known.push(real);
    }
    Ok(())
}

/// Writes the parts of the model that the run keeps.
pub(super) fn keep_model(folder: &RunFolder, settings: &Settings, model: &Model, source: &Source) -> Result<()> {
    let kept = folder.model();
    fs::create_dir_all(&kept).map_err(|error| Error::io(&kept, "making the folder", error))?;
    if let Some(from) = &settings.model {
        checkpoint::copy_files(from, &kept)?;
    }
    let record = serde_json::to_vec_pretty(&source.record()).expect("a record holds only names and formats");
    files::replace(&folder.source(), &record)?;
    let config = serde_json::to_vec_pretty(&model.config.json).expect("it was read from JSON");
    // Last, so that a folder with it has the rest.
    files::replace(&kept.join("config.json"), &config)
}

/// The model as the run folder keeps it; None if the folder does not have it yet.
pub(super) fn kept_model(folder: &Path, settings: &Settings) -> Result<Option<Model>> {
    let path = folder.join("model").join("config.json");
    let Some(text) = files::read(&path)? else { return Ok(None) };
    let config = ModelConfig::parse(&text, &path)?;
    let manifest = Manifest::new(&config);
    let name = settings.model.as_ref().and_then(|folder| folder.file_name());
    let shape = settings.shape.clone().unwrap_or_else(|| "default".to_owned());
    let name = name.map_or(shape, |name| name.to_string_lossy().into_owned());
    Ok(Some(Model { name, config, manifest }))
}

/// The run's compute threads.
pub(super) fn cpu(settings: &Settings) -> Result<Cpu> {
    Cpu::new(settings.threads as usize).map_err(|error| Error::threads(settings.threads, error))
}

/// Where the weights of a run came from.
pub(super) fn source_record(folder: &Path) -> Result<SourceRecord> {
    let path = folder.join("source.json");
    let text = fs::read_to_string(&path).map_err(|error| Error::io(&path, "reading", error))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::input(path.display().to_string(), "record", "formats of tensors", error.to_string()))
}

/// As `gather_kept`, for a run without a commit: the tokenizer is the model folder's, so that a refusal names that.
pub(super) fn gather_new(
    folder: &RunFolder,
    settings: &Settings,
    model: Model,
    observer: &mut dyn Observer,
) -> Result<Inputs> {
    gather(folder, settings, model, settings.model.clone(), observer)
}

/// Opens the data, making the run's ids if there are none, and settles length and learning rate. The tokenizer is the
/// run's own copy: the model's folder may be gone by now.
pub(super) fn gather_kept(
    folder: &RunFolder,
    settings: &Settings,
    model: Model,
    observer: &mut dyn Observer,
) -> Result<Inputs> {
    gather(folder, settings, model, Some(folder.model()), observer)
}

fn gather(
    folder: &RunFolder,
    settings: &Settings,
    model: Model,
    tokenizer: Option<PathBuf>,
    observer: &mut dyn Observer,
) -> Result<Inputs> {
    let micro_batch = micro_batch(settings);
    let mut options = DataOptions::new(settings, &model.config, micro_batch, folder.path());
    options.model = tokenizer;
    let data = Data::open(&options, &mut |done, all| {
        observer.event(&Event::Reading(done, all));
        stop_if_asked(observer)
    })?;
    let total_steps = total_steps(settings, data.report().rows)?;
    let lr = learning_rate(settings, total_steps);
    let shapes = shapes(settings.batch, micro_batch, settings.seq_len);
    let tokens_digest = format!("{}-{:016x}", data.report().ids, data.digest());
    Ok(Inputs { model, data, shapes, micro_batch, total_steps, lr, tokens_digest })
}

/// Ends what comes before the first step if a stop was asked for.
pub(super) fn stop_if_asked(observer: &dyn Observer) -> Result<()> {
    if observer.should_stop() { Err(Error::Stopped { hint: None }) } else { Ok(()) }
}

/// The learning rate of a run of `total_steps`.
pub(super) fn learning_rate(settings: &Settings, total_steps: u64) -> LearningRate {
    LearningRate::new(settings.lr, settings.lr_schedule, settings.warmup, settings.min_lr_ratio, total_steps)
}

/// Sequences of a micro-batch.
pub(super) fn micro_batch(settings: &Settings) -> u64 {
    match settings.micro_batch {
        Auto::Value(rows) => rows.min(settings.batch),
        Auto::Auto => match settings.target() {
            Target::Cpu => micro_batch_auto(settings.batch, settings.seq_len),
            Target::Gpu(_) => gpu_micro_batch_auto(settings.batch, settings.seq_len),
        },
    }
}

/// Shapes of a step.
pub(super) fn shapes(batch: u64, micro_batch: u64, seq_len: u64) -> Shapes {
    let micro_rows = micro_rows(batch, micro_batch);
    Shapes { rows_per_micro: micro_batch as usize, micro_rows, seq: seq_len as usize }
}

/// Rows of each micro-batch of a step.
fn micro_rows(batch: u64, micro_batch: u64) -> Vec<usize> {
    (0..batch).step_by(micro_batch as usize).map(|first| micro_batch.min(batch - first) as usize).collect()
}

/// Steps of a run on data of so many rows.
pub(super) fn total_steps(settings: &Settings, rows: u64) -> Result<u64> {
    let order = RowOrder::new(rows, settings.seed, settings.shuffle);
    let by_epochs = settings.epochs.map(|epochs| order.steps_for_epochs(epochs, settings.batch));
    let by_steps = settings.steps.map(u128::from);
    let steps = match (by_steps, by_epochs) {
        (Some(steps), Some(by_epochs)) => steps.min(by_epochs),
        (Some(steps), None) | (None, Some(steps)) => steps,
        (None, None) => return Err(Error::input("settings.toml", "steps", "steps or epochs", "neither")),
    };
    if steps > u128::from(STEPS_MAX) {
        let expected = format!("a run of at most {STEPS_MAX} steps");
        return Err(Error::input("--epochs", "length", expected, format!("{steps} steps")));
    }
    Ok(steps as u64)
}

fn require_model(folder: &Path) -> Result<()> {
    let Err(error) = fs::metadata(folder.join("config.json")) else { return Ok(()) };
    let found = match fs::metadata(folder) {
        _ if error.kind() == ErrorKind::PermissionDenied => "a folder that this user may not read",
        Ok(data) if data.is_dir() => "a folder without it",
        Ok(data) => input::name(data.file_type()),
        Err(_) => "no such folder",
    };
    Err(Error::input(folder.display().to_string(), "--model", "a model folder, with config.json", found))
}

pub(super) fn check_length(settings: &Settings, config: &ModelConfig, command: Option<&CommandLine>) -> Result<()> {
    let longest = config.max_positions as u64;
    if settings.seq_len <= longest {
        return Ok(());
    }
    Err(Error::Input {
        place: command.map_or_else(|| "settings.toml".to_owned(), |command| command.place_of("seq-len")),
        field: "--seq-len".to_owned(),
        expected: format!("at most the model's max_position_embeddings, {longest}"),
        found: settings.seq_len.to_string(),
        hint: command.map(|command| format!("run: {}", command.with("seq-len", &longest.to_string()))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_batches_cover_the_batch() {
        assert_eq!(micro_rows(4, 1), [1, 1, 1, 1]);
        assert_eq!(micro_rows(5, 2), [2, 2, 1]);
        assert_eq!(micro_rows(2, 2), [2]);
    }
}
