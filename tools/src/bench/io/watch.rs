//! What goes on while it is measured: a bar with the time that is left, and the stop signals. Nothing has to be tidied
//! up at a stop: the files have no names.

use crate::failure::Failure;
use crate::progress::bar;
use crate::say;
use crate::signals::Stop;
use indicatif::ProgressBar;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Progress and stop.
pub struct Watch {
    stop: Stop,
    bar: ProgressBar,
    started: Instant,
    written: Cell<u64>,
}

impl Watch {
    /// Takes over the stop signals; `expected`: seconds that it will take, about.
    ///
    /// # Errors
    /// The system refuses to give them.
    pub fn new(expected: f64, is_hidden: bool) -> Result<Watch, Failure> {
        let bar = bar("measuring", is_hidden);
        bar.set_length((expected * 1e3) as u64);
        let shown = bar.clone();
        let stop = Stop::install(move || shown.suspend(|| say::err("stopping; nothing is left behind")))?;
        Ok(Watch { stop, bar, started: Instant::now(), written: Cell::new(0) })
    }

    /// What is measured now.
    pub fn part(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
        self.tick();
    }

    /// Moves the bar to the present.
    pub fn tick(&self) {
        let length = self.bar.length().unwrap_or(0);
        // An estimate that turned out too short leaves the bar just before its end.
        self.bar.set_position((self.started.elapsed().as_millis() as u64).min(length.saturating_sub(1)));
    }

    /// A line beside the bar.
    pub fn say(&self, text: impl std::fmt::Display) {
        self.bar.suspend(|| say::err(text));
    }

    /// Whether a signal came.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }

    /// The handle on the signals.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// # Errors
    /// A signal came (exit code 130).
    pub fn go_on(&self) -> Result<(), Failure> {
        self.tick();
        if self.is_stopped() { Err(Failure::new("stopped; nothing was left behind", 130)) } else { Ok(()) }
    }

    /// Counts bytes that were written to a path.
    pub fn wrote(&self, bytes: u64) {
        self.written.set(self.written.get() + bytes);
    }

    /// Bytes written until now.
    pub fn written(&self) -> u64 {
        self.written.get()
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
