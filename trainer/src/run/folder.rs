//! The folder of a run. It holds everything that a resume or an export needs, so that neither the model's folder nor
//! the text is needed any more once the run has its first commit.
//!
//! | file | what | written |
//! | --- | --- | --- |
//! | `settings.toml` | the settings, under the flags' names | first, by rename |
//! | `lock` | id of the process at work | at every start |
//! | `model/` | `config.json` and, if there are any, the tokenizer's files | before the import |
//! | `source.json` | where the weights came from, format of each tensor | before the import |
//! | `tokens.bin` | the text as ids | before the import |
//! | `run.json` | id of the run, which is its store's; an accepted number of steps | with the store; by a resume |
//! | `store/` | the pages, unless they are kept elsewhere | import, steps |
//! | `processes.jsonl` | a line when a process's steps begin, one when they are over | before and after the steps |
//! | `metrics.jsonl` | a line a step | steps |
//! | `report.html` | the run's page, if one was asked for | `mt report` |

use super::command_line::quoted;
use super::files;
use super::lock::Lock;
use crate::error::{Error, Result};
use crate::input;
use crate::settings::Settings;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The flag that names a run's folder, and what it takes.
const FLAG: &str = "--run";
const EXPECTED: &str = "a new folder";
/// Folder for runs that were given no name.
const RUNS: &str = "runs";
/// Name of the file with a line for each beginning and end of a process.
pub const PROCESSES: &str = "processes.jsonl";
/// Name of the report, unless it is written elsewhere.
pub const REPORT: &str = "report.html";

/// A run's folder, locked by this process if it can write to it.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// The path as the user gave it, for what is printed.
    shown: PathBuf,
    /// Folders above it that were missing, each before its parent.
    made: Vec<PathBuf>,
    _lock: Option<Lock>,
}

/// `run.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// Id of the run and of its store.
    pub uuid: String,
    /// Version of the program that made the run.
    pub version: String,
    /// Steps of the whole run that a resume accepted though the last commit's learning rates were for others; None once
    /// they are the commit's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_steps: Option<u64>,
}

impl RunFolder {
    /// Makes the folder: the named one, or the first free `runs/NAME-1`, `runs/NAME-2`, ...
    ///
    /// # Errors
    /// `Input` with the resume command if the named folder exists and is not empty; `Io`.
    pub fn create(named: Option<&Path>, name: &str) -> Result<RunFolder> {
        let (path, made) = match named {
            Some(path) => (path.to_owned(), make_named(path)?),
            None => make_next(name)?,
        };
        let shown = path;
        let path = absolute(&shown)?;
        files::sync_folder_of(&path)?;
        let lock = Some(Lock::take(&path)?);
        Ok(RunFolder { path, shown, made, _lock: lock })
    }

    /// Locks an existing run's folder.
    ///
    /// # Errors
    /// `Input` if there is none, or if another process works on it.
    pub fn open(path: &Path) -> Result<RunFolder> {
        RunFolder::open_with(path, |path| Lock::take(path).map(Some))
    }

    /// As `open`, for reading alone: a folder that cannot be written is not locked.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_to_read(path: &Path) -> Result<RunFolder> {
        RunFolder::open_with(path, Lock::take_to_read)
    }

    fn open_with(shown: &Path, lock: fn(&Path) -> Result<Option<Lock>>) -> Result<RunFolder> {
        require(shown)?;
        let path = absolute(shown)?;
        let lock = lock(&path)?;
        Ok(RunFolder { path, shown: shown.to_owned(), made: Vec::new(), _lock: lock })
    }

    /// The folder as the user named it.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Whether the run has made steps, or is about to: with commits, it has one.
    pub fn has_begun(&self) -> bool {
        has_begun(&self.path)
    }

    /// The command that goes on with the run.
    pub fn resume_command(&self) -> String {
        format!("mt resume {}", quoted(&self.shown.display().to_string()))
    }

    /// The folder, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The step lines.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// What each process was going to do, and how it ended.
    pub fn processes(&self) -> PathBuf {
        self.path.join(PROCESSES)
    }

    /// Folder with the model's `config.json` and tokenizer.
    pub fn model(&self) -> PathBuf {
        self.path.join("model")
    }

    /// Where the weights came from.
    pub fn source(&self) -> PathBuf {
        self.path.join("source.json")
    }

    /// Directories of the store.
    pub fn stores(&self, settings: &Settings) -> Vec<PathBuf> {
        stores(&self.path, settings)
    }

    /// As `stores`, for what is printed.
    pub fn shown_stores(&self, settings: &Settings) -> Vec<PathBuf> {
        stores(&self.shown, settings)
    }

    /// The settings.
    pub fn settings(&self) -> Result<Settings> {
        settings(&self.path)
    }

    /// Replaces the settings.
    pub fn write_settings(&self, settings: &Settings) -> Result<()> {
        let text = toml::to_string(settings).expect("settings hold only numbers, text and lists");
        let head = "# Settings of this run, under the names of the flags of `mt train`.\n";
        files::replace(&self.path.join("settings.toml"), format!("{head}{text}").as_bytes())
    }

    /// The record of the store, if it was made.
    pub fn record(&self) -> Result<Option<RunRecord>> {
        record(&self.path)
    }

    /// Forgets the record of the store: a new store is going to be made.
    pub fn remove_record(&self) -> Result<()> {
        match fs::remove_file(self.path.join("run.json")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(&self.path, "removing run.json", error)),
            _ => Ok(()),
        }
    }

    /// Replaces the record of the store.
    pub fn write_record(&self, record: &RunRecord) -> Result<()> {
        let text = serde_json::to_vec_pretty(record).expect("a record holds only text");
        files::replace(&self.path.join("run.json"), &text)
    }

    /// Removes what a run that ended before its first step has left, so that nothing looks like a run. `stores`
    /// are those that this process made.
    pub fn remove_unbegun(self, stores: &[PathBuf]) {
        // Nothing can be done about a file that will not go; the refusal itself is what the user must see.
        let _ = mt_engine::remove(stores);
        let _ = fs::remove_dir_all(&self.path);
        for parent in self.made {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// Whether the run in a folder has begun: metrics are made after the import and its commit, before the first step.
pub fn has_begun(path: &Path) -> bool {
    path.join("metrics.jsonl").exists()
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::io(path, "finding", source))
}

/// Refuses a path that is no run's folder.
pub fn require(path: &Path) -> Result<()> {
    if path.join("settings.toml").is_file() {
        return Ok(());
    }
    let found = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => "a folder without it",
        Ok(metadata) => input::name(metadata.file_type()),
        Err(_) => "nothing",
    };
    Err(Error::Input {
        place: path.display().to_string(),
        field: "run".to_owned(),
        expected: "the folder of a run, with settings.toml".to_owned(),
        found: found.to_owned(),
        hint: Some("list runs: mt ls".to_owned()),
    })
}

/// The settings in a run's folder.
pub fn settings(path: &Path) -> Result<Settings> {
    let file = path.join("settings.toml");
    let text = fs::read_to_string(&file).map_err(|source| Error::io(&file, "reading", source))?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Error::input(format!("{}:{line}", file.display()), "settings", "a run's settings", error.message().to_owned())
    })
}

/// The record in a run's folder.
pub fn record(path: &Path) -> Result<Option<RunRecord>> {
    let file = path.join("run.json");
    let Some(text) = files::read(&file)? else { return Ok(None) };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| Error::input(file.display().to_string(), "record", "id and version", error.to_string()))
}

/// Directories of a run's store.
pub fn stores(run: &Path, settings: &Settings) -> Vec<PathBuf> {
    if settings.store.is_empty() { vec![run.join("store")] } else { settings.store.clone() }
}

/// Makes a run's folder and what is missing above it; gives the latter.
fn make_named(path: &Path) -> Result<Vec<PathBuf>> {
    input::folder_place(path, FLAG, EXPECTED)?;
    let made = path.parent().map_or(Ok(Vec::new()), files::make_folder).map_err(|error| unmade(path, error))?;
    match fs::create_dir(path) {
        Ok(()) => Ok(made),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if is_unused(path) {
                return Ok(made);
            }
            let is_run = path.join("settings.toml").is_file();
            let hint = match is_run {
                true => format!("run: mt resume {}", quoted(&path.display().to_string())),
                false => "name a new folder".to_owned(),
            };
            Err(Error::Input {
                place: path.display().to_string(),
                field: FLAG.to_owned(),
                expected: EXPECTED.to_owned(),
                found: if is_run { "a run" } else { "a folder with other files" }.to_owned(),
                hint: Some(hint),
            })
        }
        Err(error) => Err(unmade(path, Error::io(path, "making the folder", error))),
    }
}

/// The refusal of a run's folder that could not be made.
fn unmade(path: &Path, error: Error) -> Error {
    match error {
        Error::Io { doing, source, .. } => input::unmade(path, FLAG, EXPECTED, doing, source),
        other => other,
    }
}

/// Whether a folder is empty, or a run was killed before its settings were there.
fn is_unused(path: &Path) -> bool {
    let is_first = |name: &str| name == "lock" || name == "settings.toml.new";
    fs::read_dir(path)
        .is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name().to_str().is_some_and(is_first)))
}

/// Makes the next free folder in `runs`, and that if it is missing; gives the path and what was missing above it.
fn make_next(name: &str) -> Result<(PathBuf, Vec<PathBuf>)> {
    let runs = Path::new(RUNS);
    input::folder_place(runs, FLAG, EXPECTED)?;
    let made = files::make_folder(runs).map_err(|error| unmade(runs, error))?;
    let mut number = 1_u64;
    loop {
        let path = runs.join(format!("{name}-{number}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok((path, made)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(unmade(&path, Error::io(&path, "making the folder", error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_run_that_exists_is_refused_with_the_resume_command() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b");
        let folder = RunFolder::create(Some(&path), "x").unwrap();
        fs::write(path.join("settings.toml"), "").unwrap();
        drop(folder);
        let text = RunFolder::create(Some(&path), "x").unwrap_err().to_string();
        assert!(text.ends_with(&format!("run: mt resume '{}'", path.display())), "{text}");
    }

    #[test]
    fn other_folders_are_no_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert!(require(dir.path()).is_err() && require(&dir.path().join("none")).is_err());
        fs::write(dir.path().join("other"), "").unwrap();
        assert!(RunFolder::create(Some(dir.path()), "x").is_err());
    }
}
