//! Stop signals: the first Ctrl-C, SIGTERM or SIGHUP asks the run to stop at a resumable point and is answered at once,
//! the second ends the process.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Stack of the thread that answers, which prints a line.
const STACK_BYTES: usize = 128 << 10;

/// How often that thread looks for a signal. The ways to sleep until one comes need sockets, and the program has none.
const PAUSE: Duration = Duration::from_millis(50);

/// What is said when the first signal comes; taken by whoever sees it first.
type Answer = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// Whether a stop was asked for.
#[derive(Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    answer: Arc<Answer>,
}

impl Stop {
    /// Takes over the signals. `answer` is called once when the first comes, whatever the run is doing.
    ///
    /// # Errors
    /// The system refuses a handler or a thread.
    pub fn install(answer: impl FnOnce() + Send + 'static) -> Result<Stop, Failure> {
        let answer: Answer = Mutex::new(Some(Box::new(answer)));
        let stop = Stop { asked: Arc::default(), answer: Arc::new(answer) };
        watch(&stop).map_err(|error| Failure::new(format!("installing signal handlers failed: {error}"), 4))?;
        Ok(stop)
    }

    /// Whether a signal came. If so, it has been answered.
    pub fn is_asked(&self) -> bool {
        let is_asked = self.asked.load(Ordering::Relaxed);
        if is_asked {
            // Under the lock until it is said, so that nobody goes on before.
            let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
            answer.take().into_iter().for_each(|answer| answer());
        }
        is_asked
    }
}

fn watch(stop: &Stop) -> io::Result<()> {
    // A run under nohup goes on when its terminal closes.
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        // Handlers run in this order: the first sees the flag of an earlier signal, the second sets it.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop.asked))?;
        flag::register(signal, Arc::clone(&stop.asked))?;
    }
    let stop = stop.clone();
    let wait = move || {
        while !stop.is_asked() {
            thread::sleep(PAUSE);
        }
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
