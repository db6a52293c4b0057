//! The page of a run: curves, where the time went, what moved, the plan beside what happened. One HTML file that needs
//! no other and no network; it has no script. What a run did not record is shown as *not recorded*.

mod charts;
mod digest;
pub mod html;
mod tables;

use crate::list_cmd::standing;
use crate::table::{count, parameters, seconds, steps as count_steps};
use charts::{Axes, bar, curve, stacked};
use digest::{Digest, Value, buckets};
use html::{escape, section, tile};
use mt_trainer::digits::digits;
use mt_trainer::measure::updates::ELEMENT_BYTES;
use mt_trainer::run::size::human;
use mt_trainer::run::{History, Predicted, StepRecord};
use std::fmt::Write;

const STYLE: &str = include_str!("report_page/page.css");

/// Bars and points of a chart, at most.
const BARS_MAX: usize = 120;
const POINTS_MAX: usize = 400;

/// What is shown where there is nothing to show.
pub const NOT_RECORDED: &str = "not recorded";

/// The page. `life`: bytes that each drive may write in its life, where that is known.
pub fn page(history: &History, life: Option<f64>) -> String {
    let digest = Digest::new(history);
    let name = history.inspection.run.display().to_string();
    let mut body = head(history, &digest, &name);
    if digest.steps.is_empty() {
        body.push_str(&section("No step yet", "<p>The run has not made a step.</p>"));
    } else {
        body.push_str(&loss(&digest));
        body.push_str(&time(&digest));
        body.push_str(&traffic(&digest));
        body.push_str(&section("Predicted and measured", &tables::predicted(&digest)));
    }
    body.push_str(&section("Drives", &tables::drives(history, &digest, life)));
    body.push_str(&section("Processes", &tables::processes(&digest)));
    body.push_str(&tables::settings(history));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{}</title><style>{STYLE}</style></head>\n\
         <body><main>\n{body}</main></body></html>\n",
        escape(&name)
    )
}

/// Name, standing and the numbers that matter most.
fn head(history: &History, digest: &Digest<'_>, name: &str) -> String {
    let start = digest.processes.last().map(|process| process.start);
    let model = match (&start, &history.inspection.settings.model) {
        (Some(start), _) => format!("{}, {} parameters", start.model, parameters(start.parameters)),
        (None, Some(model)) => model.display().to_string(),
        (None, None) => "built-in model".to_owned(),
    };
    let mut out = format!(
        "<header><h1>{}</h1><p>{} &middot; {}</p></header>\n<div class=\"tiles\">",
        escape(name),
        escape(&model),
        escape(&standing(&history.inspection))
    );
    if let (Some(first), Some(last)) = (digest.steps.first(), digest.steps.last()) {
        let total = start.map_or(String::new(), |start| format!(" of {}", count(start.total_steps)));
        out.push_str(&tile("loss", &format!("{:.4}", last.loss), &format!("{:.4} at the first step", first.loss)));
        out.push_str(&tile("step", &format!("{}{total}", count(last.step)), &tokens(digest)));
        let median = digest.median_seconds().map_or(String::new(), |median| format!("median {}", seconds(median)));
        let said = digest.predicted().map_or(String::new(), |said| format!("; predicted {}", seconds(said.seconds)));
        let mean = digest.mean_seconds().map_or(String::new(), seconds);
        out.push_str(&tile("a step takes, the mean", &mean, &(median + &said)));
        let rate = digest.tokens_per_s().map_or(String::new(), digits);
        let all: f64 = digest.steps.iter().map(|step| step.seconds).sum();
        out.push_str(&tile("tokens/s", &rate, &format!("{} in steps", seconds(all))));
        let budget = start.map_or(String::new(), |start| format!("of a budget of {}", human(start.ram_bytes)));
        let peak = digest.steps.iter().map(|step| step.peak_ram_bytes).max().unwrap_or(0);
        out.push_str(&tile("RAM at the peak", &human(peak), &budget));
        if digest.is_on_gpu() {
            let share = digest.mean(|step| step.gpu.map(|gpu| gpu.gpu_busy_share)).unwrap_or(0.0);
            out.push_str(&tile("GPU busy", &format!("{:.1}%", 100.0 * share), "of a step, by its own clock"));
        }
        let (read, written) = tables::moved(digest);
        out.push_str(&tile("written to disk", &human(written), &format!("{} read", human(read))));
    }
    out.push_str("</div>\n");
    out
}

fn tokens(digest: &Digest<'_>) -> String {
    format!("{} tokens", count(digest.steps.iter().map(|step| step.tokens).sum()))
}

/// First and last step that are drawn.
fn ends(digest: &Digest<'_>) -> (u64, u64) {
    let steps = digest.steps;
    (steps.first().map_or(1, |step| step.step), steps.last().map_or(1, |step| step.step))
}

/// A curve of one value over all steps.
fn line(digest: &Digest<'_>, of: fn(&StepRecord) -> Option<f64>, title: &str, color: &str, is_small: bool) -> String {
    let all = buckets(digest.steps, POINTS_MAX, &[&of]);
    let values = || all.iter().filter_map(|bucket| bucket.values[0]).filter(|value| value.is_finite());
    let (low, high) = values().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return format!("<p class=\"none\">{title}: {NOT_RECORDED}</p>");
    }
    // A little air; from zero where zero is near.
    let low = if low >= 0.0 && low < 0.4 * high { 0.0 } else { low - 0.05 * (high - low).max(0.02 * high.abs()) };
    let high = high + 0.05 * (high - low).max(1e-12);
    let (first, last) = ends(digest);
    let (label, resumes) = (&|value: f64| short(value), digest.resumes());
    curve(&Axes { first, last, low, high, label, resumes: &resumes, title, is_small }, &all, color)
}

/// A number of three digits or so.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if !(0.001..1e5).contains(&v) => format!("{value:.1e}"),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 1.0 => trimmed(format!("{value:.2}")),
        _ => trimmed(format!("{value:.4}")),
    }
}

fn trimmed(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn loss(digest: &Digest<'_>) -> String {
    let resumes = match digest.resumes().len() {
        0 => String::new(),
        1 => "<p class=\"note\">The dotted line is where the run was resumed.</p>".to_owned(),
        n => format!("<p class=\"note\">The dotted lines are where the run was resumed, {n} times.</p>"),
    };
    let small = [
        ("gradient norm", line(digest, |step| step.grad_norm, "gradient norm", "backward", true)),
        ("learning rate", line(digest, |step| Some(step.lr), "learning rate", "update", true)),
    ];
    let small: String = small.map(|(name, chart)| format!("<figure><h3>{name}</h3>{chart}</figure>")).concat();
    let large = line(digest, |step| Some(step.loss), "loss", "forward", false);
    section("Loss", &format!("{large}{resumes}<div class=\"two\">{small}</div>"))
}

/// Seconds of a step by cause: over the steps, typical, and as the plan had it.
fn time(digest: &Digest<'_>) -> String {
    let causes = digest.causes();
    let values: Vec<Value<'_>> = causes.iter().map(|cause| &cause.seconds as Value<'_>).collect();
    let means: Vec<(&str, &str, Option<f64>)> =
        causes.iter().map(|cause| (cause.name, cause.color, digest.mean(cause.seconds))).collect();
    let all: f64 = means.iter().filter_map(|(_, _, mean)| *mean).sum();
    let said = digest.predicted();
    let (first, last) = ends(digest);
    let resumes = digest.resumes();
    let axes = |high: f64| Axes {
        first,
        last,
        low: 0.0,
        high,
        label: &|value| format!("{} s", short(value)),
        resumes: &resumes,
        title: "seconds of each step by cause",
        is_small: false,
    };
    let dashed = said.map(|said| said.seconds);
    let high = |tallest: f64| 1.05 * tallest.max(dashed.filter(|said| *said < 2.0 * tallest).unwrap_or(0.0));
    if all <= 0.0 {
        let bars = buckets(digest.steps, BARS_MAX, &[&|step| Some(step.seconds)]);
        let tallest = bars.iter().filter_map(|bucket| bucket.values[0]).fold(0.0, f64::max);
        let chart = stacked(&axes(high(tallest)), &bars, &[("a step", "rest")], dashed);
        let text = format!("<p class=\"none\">How a step's time is split: {NOT_RECORDED}.</p>");
        return section("Where the time goes", &format!("{chart}{text}"));
    }
    let bars = buckets(digest.steps, BARS_MAX, &values);
    let sum = |values: &[Option<f64>]| values.iter().flatten().sum::<f64>();
    let tallest = bars.iter().map(|bucket| sum(&bucket.values)).fold(0.0, f64::max);
    let colors: Vec<(&str, &str)> = causes.iter().map(|cause| (cause.name, cause.color)).collect();
    let mut out = stacked(&axes(high(tallest)), &bars, &colors, dashed);
    out.push_str("<ul class=\"legend\">");
    for (name, color, mean) in &means {
        let mean = mean.unwrap_or(0.0);
        let (percent, mean) = (100.0 * mean / all, seconds(mean));
        _ = write!(out, "<li><i class=\"{color}\"></i>{name} <b>{mean}</b> <span>{percent:.0}%</span></li>");
    }
    out.push_str("</ul>");
    _ = write!(out, "<p class=\"note\">{}</p>", about(digest));
    out.push_str(&compared(&means, all, said, digest));
    section("Where the time goes", &out)
}

/// How the causes are to be read, and in which of them memory bandwidth is: no clock tells a core that waits for memory
/// from one that computes.
fn about(digest: &Digest<'_>) -> String {
    let means = "Means over the steps that are typical.";
    if digest.is_on_gpu() {
        return format!(
            "{means} By the GPU's time: what its stream computes, and what it waits for between two instructions. What \
             the processor does beside it takes none of a step. Memory bandwidth is no cause of its own: the \
             processor's, which binds its updates, is in the waits for the processor, the GPU's in what it computes."
        );
    }
    let rate = |bytes_per_s: f64| format!("{} GB/s", digits(bytes_per_s * 1e-9));
    let found = digest.update_bytes_per_s().map_or(String::new(), |(found, planned)| {
        let planned = planned.map_or(String::new(), |planned| format!(", where the plan had {}", rate(planned)));
        format!(": it moved {}{planned}", rate(found))
    });
    format!(
        "{means} Memory bandwidth is no cause of its own, since a core that waits for memory looks like one that \
         computes. It is in the optimizer's time, which does little else than move {ELEMENT_BYTES} bytes a \
         parameter, to memory where caches do not hold them{found}."
    )
}

/// The typical step beside the predicted one, on one scale.
fn compared(means: &[(&str, &str, Option<f64>)], all: f64, said: Option<&Predicted>, digest: &Digest<'_>) -> String {
    let label = |value: f64| seconds(value);
    let measured: Vec<(&str, &str, f64)> =
        means.iter().map(|(name, color, mean)| (*name, *color, mean.unwrap_or(0.0))).collect();
    let Some(said) = said else {
        return format!("<p class=\"none\">The plan's step: {NOT_RECORDED}.</p>");
    };
    let compute = said.phases.iter().map(|phase| {
        let (name, color) = match phase.phase.as_str() {
            "forward" => ("forward", "forward"),
            "loss" => ("loss", "loss"),
            "backward" => ("backward, recompute included", "backward"),
            _ => ("optimizer", "update"),
        };
        (name, color, phase.compute_seconds)
    });
    let waits = said.phases.iter().map(|phase| phase.wait_seconds).sum();
    let planned: Vec<(&str, &str, f64)> =
        compute.chain([(if digest.is_on_gpu() { "waits" } else { "waits for the disk" }, "read", waits)]).collect();
    let widest = all.max(said.seconds);
    format!(
        "<div class=\"bars\"><span>measured</span>{}<b>{}</b><span>predicted</span>{}<b>{}</b></div>\
         <p class=\"note\">The mean of {} that are typical, and the plan's step; the dashed line is the plan's too. It \
         cannot take less than {} with this traffic on this profile.</p>",
        bar(&measured, widest, &label),
        seconds(all),
        bar(&planned, widest, &label),
        seconds(said.seconds),
        count_steps(digest.steady.len() as u64),
        seconds(said.lower_bound_seconds)
    )
}

/// Bytes of each step, by direction.
fn traffic(digest: &Digest<'_>) -> String {
    let most = digest.steps.iter().map(|step| step.disk_read_bytes.max(step.disk_write_bytes)).max().unwrap_or(0);
    if most == 0 {
        let none = "<p class=\"none\">Nothing moved to or from a disk.</p>";
        let table = if digest.is_on_gpu() { tables::tiers(digest) } else { String::new() };
        return section("Traffic", &format!("{none}{table}"));
    }
    let (unit, name) = if most >= 1 << 30 { (f64::from(1 << 30), "GiB") } else { (f64::from(1 << 20), "MiB") };
    let (first, last) = ends(digest);
    let resumes = digest.resumes();
    let label = |value: f64| format!("{} {name}", short(value));
    let said = digest.predicted();
    let chart = |what: &str, color: &str, of: &dyn Fn(&StepRecord) -> f64, said: Option<u64>| {
        let bars = buckets(digest.steps, BARS_MAX, &[&|step| Some(of(step) / unit)]);
        let high = 1.05 * most as f64 / unit;
        let axes = Axes { first, last, low: 0.0, high, label: &label, resumes: &resumes, title: what, is_small: true };
        let chart = stacked(&axes, &bars, &[(what, color)], said.map(|said| said as f64 / unit));
        format!("<figure><h3>{what} in each step</h3>{chart}</figure>")
    };
    let read = chart("read", "read", &|step| step.disk_read_bytes as f64, said.map(|said| said.disk_read_bytes));
    let written =
        chart("written", "write", &|step| step.disk_write_bytes as f64, said.map(|said| said.disk_write_bytes));
    section("Traffic", &format!("<div class=\"two\">{read}{written}</div>{}", tables::tiers(digest)))
}
