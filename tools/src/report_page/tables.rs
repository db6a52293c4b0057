//! The tables of a report.

use super::NOT_RECORDED;
use super::digest::{Digest, Process};
use super::html::{escape, table};
use crate::table::{count, rate, seconds};
use mt_trainer::digits::digits;
use mt_trainer::run::size::human;
use mt_trainer::run::{GpuRecord, History, StepRecord};
use std::fmt::Write;

/// Bytes read and written by all steps and by what followed the last step of each process.
pub fn moved(digest: &Digest<'_>) -> (u64, u64) {
    let read = digest.all_bytes(|step| step.disk_read_bytes, |end| end.last.disk_read_bytes);
    (read, digest.all_bytes(|step| step.disk_write_bytes, |end| end.last.disk_write_bytes))
}

/// What moves through the tiers in a typical step, and in all.
pub fn tiers(digest: &Digest<'_>) -> String {
    let bytes = |mean: Option<f64>| mean.map_or(NOT_RECORDED.to_owned(), |mean| human(mean as u64));
    let parameters = digest.processes.last().map(|process| process.start.parameters as f64);
    let (read, written) = moved(digest);
    let commits: Option<u64> = digest.steps.iter().map(|step| step.commit_bytes).sum();
    let ends: u64 = digest.processes.iter().filter_map(|process| process.end).map(|end| end.last.commit_bytes).sum();
    let row = |name: &str, of: fn(&StepRecord) -> u64, busy: fn(&StepRecord) -> Option<f64>, all: u64| {
        let mean = digest.mean(|step| Some(of(step) as f64));
        let busy = digest.mean(busy);
        let per = mean.zip(parameters).map_or(NOT_RECORDED.to_owned(), |(mean, n)| format!("{:.2} B", mean / n));
        let speed = mean.zip(busy).map_or(NOT_RECORDED.to_owned(), |(mean, busy)| rate(mean as u64, busy));
        vec![name.to_owned(), bytes(mean), per, busy.map_or(NOT_RECORDED.to_owned(), seconds), speed, human(all)]
    };
    let mut rows = vec![
        row("disk to RAM", |step| step.disk_read_bytes, |step| step.disk_read_seconds, read),
        row("RAM to disk", |step| step.disk_write_bytes, |step| step.disk_write_seconds, written),
        vec![
            "of it by commits".to_owned(),
            bytes(digest.mean(|step| step.commit_bytes.map(|bytes| bytes as f64))),
            String::new(),
            String::new(),
            String::new(),
            commits.map_or(NOT_RECORDED.to_owned(), |bytes| human(bytes + ends)),
        ],
    ];
    if digest.is_on_gpu() {
        let all = |of: fn(&GpuRecord) -> u64| digest.steps.iter().filter_map(|step| step.gpu.as_ref()).map(of).sum();
        rows.extend([
            row(
                "RAM to VRAM",
                |step| step.gpu.map_or(0, |gpu| gpu.upload_bytes),
                |step| Some(step.gpu?.upload_seconds),
                all(|gpu| gpu.upload_bytes),
            ),
            row(
                "VRAM to RAM",
                |step| step.gpu.map_or(0, |gpu| gpu.download_bytes),
                |step| Some(step.gpu?.download_seconds),
                all(|gpu| gpu.download_bytes),
            ),
        ]);
    }
    let head = ["", "a typical step", "a parameter", "busy", "while busy", "the whole run"];
    format!("{}<p class=\"note\">{}</p>", table(&head, &rows), lasts(digest))
}

/// What the steps' lines leave out.
fn lasts(digest: &Digest<'_>) -> String {
    let ends: Vec<_> = digest.processes.iter().filter_map(|process| process.end).collect();
    let written: u64 = ends.iter().map(|end| end.last.disk_write_bytes).sum();
    match ends.len() {
        0 => format!("The last update and commit of a process: {NOT_RECORDED}."),
        _ => format!("The whole run includes the last update and commit of each process, {} written.", human(written)),
    }
}

/// The plan beside what was measured.
pub fn predicted(digest: &Digest<'_>) -> String {
    let Some(said) = digest.predicted() else {
        return format!("<p class=\"none\">What the plan said: {NOT_RECORDED}.</p>");
    };
    let mean = |of: fn(&StepRecord) -> u64| digest.mean(|step| Some(of(step) as f64)).unwrap_or(0.0);
    let commits = digest.mean(|step| step.commit_bytes.map(|bytes| bytes as f64));
    let peak = digest.steps.iter().map(|step| step.peak_ram_bytes).max().unwrap_or(0);
    let bytes = |bytes: f64| human(bytes as u64);
    let written = mean(|step| step.disk_write_bytes) - commits.unwrap_or(0.0);
    let step = |seconds_of: &dyn Fn(f64) -> String, name: &str, planned: f64, found: f64| {
        vec![name.to_owned(), seconds_of(planned), seconds_of(found), ratio(planned, found)]
    };
    let rows = [
        step(&seconds, "seconds of a step, the mean", said.seconds, digest.mean_seconds().unwrap_or(0.0)),
        step(&bytes, "read in a step", said.disk_read_bytes as f64, mean(|step| step.disk_read_bytes)),
        step(&bytes, "written in a step, commits apart", said.disk_write_bytes as f64, written),
        step(&bytes, "RAM at the peak", said.peak_ram_bytes as f64, peak as f64),
    ];
    let drift = digest.processes.last().and_then(|process| process.end).and_then(|end| end.drift.as_ref());
    let drift = drift.map_or(String::new(), |drift| format!("<p class=\"drift\">{}</p>", escape(drift)));
    format!("{}{drift}", table(&["", "predicted", "measured", "measured / predicted"], &rows))
}

/// How much of what was predicted, as a number and as a mark on a line from a half to twice.
fn ratio(planned: f64, found: f64) -> String {
    if planned <= 0.0 {
        return if found <= 0.0 { "none, as predicted".to_owned() } else { "none was predicted".to_owned() };
    }
    let times = found / planned;
    let at = 50.0 + 50.0 * times.max(1e-9).log2().clamp(-1.0, 1.0);
    // Less than was planned is no worry.
    let class = if times <= 1.1 { "near" } else { "far" };
    format!("<span class=\"ratio {class}\"><i style=\"left:{at:.1}%\"></i></span>{times:.2}")
}

/// What each drive of the store has moved over its life, and how much of its rating that is.
pub fn drives(history: &History, digest: &Digest<'_>, life: Option<f64>) -> String {
    let Some(description) = &history.inspection.description else {
        let (read, written) = moved(digest);
        let text = format!("The run's processes read {} and wrote {}.", human(read), human(written));
        return format!("<p>{text} The store's own count: {NOT_RECORDED}, since it does not open.</p>");
    };
    let rows: Vec<Vec<String>> = description
        .volumes
        .iter()
        .zip(&description.identity.ledger)
        .map(|(volume, ledger)| {
            let wear = life.map_or("no rating was given (--tbw)".to_owned(), |life| {
                let percent = 100.0 * ledger.write_bytes as f64 / life;
                let width = percent.min(100.0);
                format!(
                    "<span class=\"wear\"><i style=\"width:{width:.2}%\"></i></span>{} of {} TB",
                    share(percent),
                    digits(life / 1e12)
                )
            });
            let path = escape(&volume.path.display().to_string());
            vec![path, human(ledger.read_bytes), human(ledger.write_bytes), wear]
        })
        .collect();
    let note = "<p class=\"note\">Counted by the store itself over its life, import and commits included, up to its \
                last commit.</p>";
    format!("{}{note}", table(&["", "read", "written", "of its rated life"], &rows))
}

/// A percentage that may be tiny.
fn share(percent: f64) -> String {
    if percent >= 1.0 || percent <= 0.0 {
        return format!("{percent:.1}%");
    }
    // Two digits that say something.
    let digits = (1.0 - percent.log10()).floor() as usize;
    format!("{percent:.digits$}%")
}

/// Every process that worked on the run.
pub fn processes(digest: &Digest<'_>) -> String {
    if digest.processes.is_empty() {
        return format!("<p class=\"none\">The run's processes: {NOT_RECORDED}.</p>");
    }
    let row = |process: &Process<'_>| {
        let Process { start, end } = *process;
        let steps = match end {
            Some(end) if end.step > start.first_step => {
                format!("{} to {}", count(start.first_step + 1), count(end.step))
            }
            Some(_) => "none".to_owned(),
            None => format!("from {}", count(start.first_step + 1)),
        };
        let (ending, took) = end.map_or(("killed, or still at work".to_owned(), String::new()), |end| {
            (escape(&end.ending), seconds(end.seconds))
        });
        let drift = end.and_then(|end| end.drift.as_ref()).map_or(String::new(), |drift| escape(drift));
        let begun = utc(start.unix_seconds);
        vec![begun, steps, took, ending, human(start.ram_bytes), escape(&start.profile), drift]
    };
    let rows: Vec<Vec<String>> = digest.processes.iter().map(row).collect();
    let all = table(&["begun (UTC)", "steps", "time", "ended", "RAM", "profile", "drift"], &rows);
    format!("<div class=\"history\">{all}</div>")
}

/// Day and minute.
fn utc(unix_seconds: u64) -> String {
    let (date, minutes) = (mt_trainer::profile::probe::date(unix_seconds), unix_seconds % 86_400 / 60);
    format!("{date} {:02}:{:02}", minutes / 60, minutes % 60)
}

/// The settings in force.
pub fn settings(history: &History) -> String {
    let settings = serde_json::to_value(&history.inspection.settings).expect("settings hold numbers, text and lists");
    let mut out = "<section><details><summary><h2>Settings</h2></summary><dl>".to_owned();
    for (name, value) in settings.as_object().into_iter().flatten() {
        let value = value.as_str().map_or(value.to_string(), str::to_owned);
        _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value));
    }
    out.push_str("</dl></details></section>\n");
    out
}
