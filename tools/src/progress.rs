//! How a run shows: text on stdout, a progress bar on stderr if that is a terminal, or JSON lines on stdout.

use crate::failure::Failure;
use crate::report;
use crate::say;
use crate::signals::Stop;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mt_trainer::run::{Ending, Event, Observer, Planned, StepRecord, Summary};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Lines of steps that a run prints at least, long ones more.
const LINES: u64 = 12;
/// No longer than this without a line.
const QUIET: Duration = Duration::from_secs(30);
/// What takes less time gets no bar.
const BRIEF: Duration = Duration::from_secs(1);

/// The terminal's view of a run.
pub struct Progress {
    stop: Stop,
    json: bool,
    /// Hidden until there is something to show.
    bar: ProgressBar,
    is_stepping: bool,
    /// What goes on before the steps, and since when.
    part: Option<(&'static str, Instant)>,
    total_steps: u64,
    every: u64,
    last_line: Instant,
}

impl Progress {
    /// Shows a run; with `json` as JSON lines. Takes over the stop signals.
    ///
    /// # Errors
    /// The system refuses to give them.
    pub fn new(json: bool) -> Result<Progress, Failure> {
        let bar = ProgressBar::hidden();
        let shown = bar.clone();
        let answer = move || shown.suspend(|| say::err("stopping after this step; a second signal ends at once"));
        Ok(Progress {
            stop: Stop::install(answer)?,
            json,
            bar,
            is_stepping: false,
            part: None,
            total_steps: 0,
            every: 1,
            last_line: Instant::now(),
        })
    }

    fn line(&self, text: &str) {
        self.bar.suspend(|| say::out(text));
    }

    fn object(&self, value: &Value) {
        if self.json {
            say::out(value);
        }
    }

    /// Begins to draw the bar, where somebody can see it.
    fn show(&self) {
        if self.bar.is_hidden() && std::io::stderr().is_terminal() && !self.json {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    fn planned(&mut self, planned: &Planned) {
        self.total_steps = planned.total_steps;
        self.every = (planned.total_steps - planned.first_step).div_ceil(LINES).max(1);
        if self.json {
            return self.object(&plan_json(planned));
        }
        for line in report::plan(planned) {
            self.line(&line);
        }
    }

    fn part(&mut self, what: &'static str, done: u64, all: u64) {
        let since = match self.part {
            Some((part, since)) if part == what => since,
            _ => {
                self.bar.reset();
                self.part.insert((what, Instant::now())).1
            }
        };
        if done == all {
            self.bar.reset();
            self.bar.set_draw_target(ProgressDrawTarget::hidden());
            return;
        }
        if since.elapsed() < BRIEF {
            return;
        }
        self.show();
        self.bar.set_style(style("{msg} {bar:30} {bytes} of {total_bytes}, {eta} left"));
        self.bar.set_message(what);
        self.bar.set_length(all);
        self.bar.set_position(done);
    }

    fn step(&mut self, record: &StepRecord) {
        if self.json {
            let mut value = serde_json::to_value(record).expect("a record holds only numbers");
            value["event"] = "step".into();
            self.object(&value);
        }
        self.show();
        self.bar.set_style(style("{msg} {bar:30} {eta} left"));
        self.bar.set_length(self.total_steps);
        self.bar.set_position(record.step);
        if !self.is_stepping {
            // Steps of earlier processes and the import say nothing of the time that is left.
            self.is_stepping = true;
            self.bar.reset_eta();
        }
        self.bar.set_message(format!("step {}/{} loss {:.4}", record.step, self.total_steps, record.loss));
        let is_due = record.step == 1
            || record.step == self.total_steps
            || record.step.is_multiple_of(self.every)
            || self.last_line.elapsed() > QUIET;
        if is_due && !self.json {
            self.line(&report::step(record, self.total_steps));
            self.last_line = Instant::now();
        }
    }

    fn ended(&self, summary: &Summary) {
        self.bar.finish_and_clear();
        if self.json {
            return self.object(&summary_json(summary));
        }
        for line in report::summary(summary) {
            self.line(&line);
        }
    }
}

impl Observer for Progress {
    fn should_stop(&self) -> bool {
        self.stop.is_asked()
    }

    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Notice(text) => self.bar.suspend(|| say::err(text)),
            Event::Planned(planned) => self.planned(planned),
            Event::Reading(done, all) => self.part("reading text", *done, *all),
            Event::Importing(done, all) => self.part("importing", *done, *all),
            Event::Step(record) => self.step(record),
            Event::Committed(step) => self.object(&json!({"event": "committed", "step": step})),
            Event::Exported(path) => {
                self.object(&json!({"event": "exported", "path": path}));
                if !self.json {
                    self.line(&format!("exported to {}", path.display()));
                }
            }
            Event::Ended(summary) => self.ended(summary),
        }
    }
}

/// A bar of its own for a command that passes over a store once.
pub fn bar(what: &'static str, json: bool) -> ProgressBar {
    let shown = std::io::stderr().is_terminal() && !json;
    let bar = if shown { ProgressBar::new(0) } else { ProgressBar::hidden() };
    bar.set_style(style("{msg} {bar:30} {percent}%, {eta} left"));
    bar.set_message(what);
    bar
}

fn style(template: &'static str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a constant that parses")
}

fn plan_json(planned: &Planned) -> Value {
    let (ram, prediction) = (&planned.ram, &planned.prediction);
    json!({
        "event": "planned",
        "run": planned.run,
        "stores": planned.stores,
        "model": planned.model,
        "random_seed": planned.random_seed,
        "bytes_as_ids": planned.is_bytes,
        "parameters": planned.parameters,
        "state_bytes": planned.state_bytes,
        "gradient_bytes": planned.gradient_bytes,
        "tokens": planned.data_tokens,
        "rows": planned.rows,
        "dropped_tokens": planned.dropped_tokens,
        "first_step": planned.first_step,
        "total_steps": planned.total_steps,
        "batch": planned.batch,
        "micro_batch": planned.micro_batch,
        "seq_len": planned.seq_len,
        "recompute": planned.recompute,
        "device": planned.target.gpu().map_or("cpu".to_owned(), |gpu| format!("cuda:{}", gpu.device.0)),
        "precision": planned.target.gpu().map_or("fp32", |gpu| gpu.precision.name()),
        "threads": planned.threads,
        "checkpoint_every": planned.checkpoint_every,
        "ram_bytes": ram.budget,
        "base_bytes": ram.base,
        "workspace_bytes": ram.workspace,
        "arena_bytes": ram.arena,
        "placed_bytes": ram.placed,
        "predicted": {
            "seconds": prediction.seconds,
            "disk_read_bytes": prediction.disk.read_bytes,
            "disk_write_bytes": prediction.disk.write_bytes,
            "commit_bytes": prediction.disk.commit_bytes,
        },
    })
}

fn summary_json(summary: &Summary) -> Value {
    let ending = match summary.ending {
        Ending::Done => "done",
        Ending::Stopped => "stopped",
        Ending::Finished => "finished",
    };
    json!({
        "event": ending,
        "resumable": summary.ending == Ending::Stopped && summary.is_durable,
        "run": summary.run,
        "step": summary.step,
        "total_steps": summary.total_steps,
        "first_loss": summary.losses.map(|(first, _)| first),
        "last_loss": summary.losses.map(|(_, last)| last),
        "steps": summary.steps_here,
        "seconds": summary.seconds,
        "tokens": summary.tokens,
        "peak_ram_bytes": summary.peak_ram_bytes,
        "vram_bytes": summary.vram.map(|vram| vram.used),
        "disk_read_bytes": summary.disk_read_bytes,
        "disk_write_bytes": summary.disk_write_bytes,
        "commit_bytes": summary.commit_bytes,
        "wait_seconds": summary.wait_seconds,
        "gpu": summary.gpu.map(|share| json!({
            "steps": share.steps,
            "seconds": share.seconds,
            "busy_seconds": share.times.busy(),
            "link_wait_seconds": share.times.gpu_link_wait_seconds,
            "processor_wait_seconds": share.times.gpu_processor_wait_seconds,
            "upload_bytes": share.upload_bytes,
            "download_bytes": share.download_bytes,
        })),
        "drift": summary.drift,
        "sample": summary.sample.as_ref().map(|(written, _)| written),
    })
}
