//! Stop signals: the first Ctrl-C or SIGTERM asks the run to stop at a resumable point, the second ends the process.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a stop was asked for.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes over SIGINT and SIGTERM.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn install() -> Result<Stop, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Handlers run in this order: the first sees the flag of an earlier signal, the second sets it.
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .map_err(|error| Failure { text: format!("installing signal handlers failed: {error}"), code: 4 })?;
        }
        Ok(Stop(asked))
    }

    /// Whether a signal came.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
