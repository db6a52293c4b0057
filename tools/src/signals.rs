//! Stop signals: the first Ctrl-C, SIGTERM or SIGHUP asks the run to stop at a resumable point and is answered at once,
//! the second ends the process.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Stack of the thread that answers, which prints a line.
const STACK_BYTES: usize = 128 << 10;

/// How often that thread looks for a signal. The ways to sleep until one comes need sockets, and the program has none.
const PAUSE: Duration = Duration::from_millis(50);

/// Whether a stop was asked for.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes over the signals. `answer` is called when the first comes, whatever the run is doing.
    ///
    /// # Errors
    /// The system refuses a handler or a thread.
    pub fn install(answer: impl FnOnce() + Send + 'static) -> Result<Stop, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        watch(&asked, answer)
            .map_err(|error| Failure::new(format!("installing signal handlers failed: {error}"), 4))?;
        Ok(Stop(asked))
    }

    /// Whether a signal came.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn watch(asked: &Arc<AtomicBool>, answer: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A run under nohup goes on when its terminal closes.
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        // Handlers run in this order: the first sees the flag of an earlier signal, the second sets it.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(asked))?;
        flag::register(signal, Arc::clone(asked))?;
    }
    let asked = Arc::clone(asked);
    let wait = move || {
        while !asked.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
        }
        answer();
    };
    thread::Builder::new().name("signals".to_owned()).stack_size(STACK_BYTES).spawn(wait).map(drop)
}

/// Whether the process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
