//! Through what transfers go.

use mt_engine::Backend;

/// The engine, or what it is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Through {
    /// The engine's backend.
    Engine(Backend),
    /// tokio-uring, for patterns and sweep.
    Tokio,
}

impl Through {
    /// As `--engine` says it.
    pub fn parse(text: &str) -> Result<Through, String> {
        match text {
            "uring" => Ok(Through::Engine(Backend::Uring)),
            "psync" => Ok(Through::Engine(Backend::Pool)),
            "tokio-uring" => Ok(Through::Tokio),
            _ => Err("expected uring, psync or tokio-uring".to_owned()),
        }
    }

    /// The backend that an engine beside it has.
    pub fn backend(self) -> Backend {
        match self {
            Through::Engine(backend) => backend,
            Through::Tokio => Backend::Auto,
        }
    }

    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Through::Engine(Backend::Auto) => "auto",
            Through::Engine(Backend::Uring) => "uring",
            Through::Engine(Backend::Pool) => "psync",
            Through::Tokio => "tokio-uring",
        }
    }
}
