//! Errors of the trainer. Each maps to one exit code of the command and tells the user what to do.

use std::path::PathBuf;

/// Result of the trainer.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Input that cannot be used: a file, a field of it, a flag. Exit code 2.
    #[error("{place}: {field}: expected {expected}, found {found}{}", then(hint))]
    Input {
        /// File (with line where there is one), or the flag.
        place: String,
        /// Field, tensor or offset within it.
        field: String,
        /// What would have been right.
        expected: String,
        /// What is there.
        found: String,
        /// What to do, if something works.
        hint: Option<String>,
    },
    /// The budgets do not hold the run. Exit code 3.
    #[error("does not fit: {what} needs {need_bytes} bytes, has {have_bytes}{}", then(hint))]
    DoesNotFit {
        /// What there is too little of.
        part: Part,
        /// In words.
        what: String,
        /// Bytes needed.
        need_bytes: u64,
        /// Bytes available.
        have_bytes: u64,
        /// The command that works.
        hint: Option<String>,
    },
    /// Reading or writing a file failed. Exit code 4.
    #[error("{}: {doing} failed: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The system refused something that is no file. Exit code 4.
    #[error("{what} failed: {source}")]
    System {
        /// What was being done, and the setting that asks for it.
        what: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A stop was asked for before there was a commit. Exit code 130.
    #[error("stopped before the first step{}", then(hint))]
    Stopped {
        /// The command that goes on, if one does.
        hint: Option<String>,
    },
    /// The store failed. Exit code 4; 2 for a store in use, of a newer format, or asked for I/O that the machine lacks;
    /// 3 for a volume that is too small.
    #[error(transparent)]
    Engine(#[from] mt_engine::Error),
    /// The GPU or its libraries failed. Exit code 4; 2 where something is missing or too old.
    #[error(transparent)]
    Gpu(#[from] mt_kernels::cuda::Error),
    /// A number that is not finite, or a weight too large for the state layout. Exit code 5.
    #[error("numeric stop at step {step}: {what}")]
    Numeric {
        /// The step (1-based) in which it was found.
        step: u64,
        /// What was found, and which commit stands.
        what: String,
    },
}

/// What a budget bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// RAM of the process.
    Ram,
    /// VRAM of the process.
    Vram,
    /// Space on the volumes.
    Disk,
}

/// A hint as the end of a sentence.
fn then(hint: &Option<String>) -> String {
    hint.as_deref().map(|h| format!("; {h}")).unwrap_or_default()
}

impl Error {
    /// Shorthand for `Input` without a hint.
    pub fn input(
        place: impl Into<String>,
        field: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        Error::Input {
            place: place.into(),
            field: field.into(),
            expected: expected.into(),
            found: found.into(),
            hint: None,
        }
    }

    /// Shorthand for `Io`.
    pub fn io(path: impl Into<PathBuf>, doing: &'static str, source: std::io::Error) -> Error {
        Error::Io { path: path.into(), doing, source }
    }

    /// A refusal of a whole file or folder, with the flag that names it.
    #[must_use]
    pub fn named_by(self, flag: &str) -> Error {
        match self {
            Error::Input { place, field, expected, found, hint } if field == "file" || field == "folder" => {
                Error::Input { place, field: flag.to_owned(), expected, found, hint }
            }
            other => other,
        }
    }

    /// Compute threads that the system refuses to start.
    pub(crate) fn threads(threads: u64, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        let what = format!("starting {threads} compute threads (--threads)");
        Error::System { what, source: std::io::Error::other(error) }
    }

    /// Exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Input { .. } => 2,
            Error::DoesNotFit { .. } => 3,
            Error::Io { .. } | Error::System { .. } => 4,
            Error::Engine(
                mt_engine::Error::Locked { .. }
                | mt_engine::Error::Format { .. }
                | mt_engine::Error::Exists { .. }
                | mt_engine::Error::MissingVolume { .. }
                | mt_engine::Error::ForeignVolume { .. }
                | mt_engine::Error::Config { .. },
            ) => 2,
            Error::Engine(error) if error.is_refused_io() => 2,
            Error::Engine(mt_engine::Error::NoSpace { .. }) => 3,
            Error::Engine(_) => 4,
            Error::Gpu(error) if error.is_missing() => 2,
            Error::Gpu(_) => 4,
            Error::Numeric { .. } => 5,
            Error::Stopped { .. } => 130,
        }
    }
}
