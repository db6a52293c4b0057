//! `mt plan` as text. Everything but sizes is predicted, and the lines say so.

use crate::report::no_disk;
use crate::table::{count, line, parameters, seconds, steps, tokens_per_s};
use mt_trainer::digits::digits;
use mt_trainer::model::shapes::SHAPES;
use mt_trainer::run::size::{decimal, human};
use mt_trainer::run::{GpuPart, KeptCounts, Limits, Report, Step, Totals, WhatIf};

const DAY: f64 = 86_400.0;

/// The known shapes, a line each.
pub fn shapes() -> Vec<String> {
    let mut lines = vec![format!(
        "{:<6} {:<21} {:>6} {:>6} {:>5} {:>8} {:>6} {:>7}  {}",
        "shape", "dimensions of", "hidden", "layers", "heads", "kv heads", "MLP", "vocab", "head"
    )];
    lines.extend(SHAPES.iter().map(|s| {
        let head = if s.tied { "the embedding's" } else { "its own" };
        format!(
            "{:<6} {:<21} {:>6} {:>6} {:>5} {:>8} {:>6} {:>7}  {head}",
            s.name, s.of, s.hidden, s.layers, s.heads, s.kv_heads, s.mlp, s.vocab
        )
    }));
    lines.extend(SHAPES.iter().filter(|s| !s.note.is_empty()).map(|s| format!("{}: {}", s.name, s.note)));
    lines
}

/// The lines of a plan.
pub fn report(it: &Report) -> Vec<String> {
    let size = format!(
        "{} parameters, {} layers, hidden {}, vocabulary {}",
        parameters(it.parameters),
        it.layers,
        it.hidden,
        count(it.vocab as u64)
    );
    let mut lines = vec![line("model", &format!("{}: {size}", it.model))];
    if !it.note.is_empty() {
        lines.push(line("", &it.note));
    }
    lines.push(line("profile", &it.profile));
    lines.extend(it.gpu.iter().map(|gpu| line("GPU", &format!("cuda:{}, {}", gpu.device, gpu.name))));
    lines.push(line("step", &shape(it)));
    lines.push(line("recompute", &kept(&it.kept)));
    lines.extend(it.gpu.iter().map(vram));
    lines.extend(limits(&it.limits, it.gpu.as_ref()));
    lines.push(String::new());
    lines.extend(places(it));
    lines.push(String::new());
    lines.extend(step(it));
    lines.extend(totals(it));
    lines.extend(it.more.iter().map(|more| {
        let found = match more.seconds {
            Some(time) => format!("{} a step, {}", seconds(time), tokens_per_s(more.tokens as f64, time)),
            None => "does not fit".to_owned(),
        };
        line(&format!("{} x batch", more.times), &format!("predicted: {} tokens a step, {found}", count(more.tokens)))
    }));
    let changes: Vec<String> = it.what_if.iter().map(what_if).collect();
    lines.push(line("what if", &format!("predicted: {}", changes.join("; "))));
    lines
}

fn shape(it: &Report) -> String {
    let update = if it.update_in_backward { "updates in backward" } else { "updates in the next forward" };
    let commits = match it.checkpoint_every {
        None => "no commits".to_owned(),
        Some(1) => "commits every step".to_owned(),
        Some(every) => format!("commits every {} steps", count(every)),
    };
    format!(
        "{} sequences of {} tokens, {} at a time; {update}, {commits}; {}",
        it.batch,
        count(it.seq_len),
        it.micro_batch,
        computed(it)
    )
}

/// What computes, and what updates.
fn computed(it: &Report) -> String {
    let Some(gpu) = &it.gpu else { return format!("fp32 on {} threads", it.threads) };
    let updates = match gpu.updates {
        0 => format!("updates on {} threads", it.threads),
        all if all == it.parameters => "updates there".to_owned(),
        some => format!(
            "updates of {} parameters there, of {} on {} threads",
            parameters(some),
            parameters(it.parameters - some),
            it.threads
        ),
    };
    format!("{} on cuda:{}, {updates}", gpu.precision, gpu.device)
}

fn vram(it: &GpuPart) -> String {
    let text = format!(
        "{}: context {} (assumed), workspace {} (holds a layer), pages {} ({} of them stay); peak predicted: {}",
        human(it.vram),
        human(it.vram_context),
        human(it.vram_workspace),
        human(it.vram_placed + it.vram_window),
        human(it.vram_placed),
        human(it.vram_peak)
    );
    line("VRAM", &text)
}

fn kept(it: &KeptCounts) -> String {
    let KeptCounts { all, attention, input, logits } = *it;
    let head = if logits { "keeps its logits" } else { "computes its logits again" };
    format!("{all} layers keep all, {attention} keep attention, {input} recompute; the head {head}")
}

fn limits(it: &Limits, gpu: Option<&GpuPart>) -> Vec<String> {
    let holds = if gpu.is_some() { "" } else { " (holds a layer)" };
    let ram = format!(
        "{}: program {}, workspace {}{holds}, pages {} ({} of them stay); peak predicted: {}",
        human(it.ram),
        human(it.ram_program),
        human(it.ram_workspace),
        human(it.ram_pages),
        human(it.ram_placed),
        human(it.ram_peak)
    );
    let disk = match it.drives {
        0 => no_disk(gpu.map_or(0, |gpu| gpu.vram_placed), it.ram_placed).to_owned(),
        1 => format!("{} on one drive", human(it.disk)),
        drives => format!("{} on {drives} drives", human(it.disk)),
    };
    vec![line("RAM", &ram), line("disk", &disk)]
}

fn places(it: &Report) -> Vec<String> {
    let row = |what: &str, columns: [String; 5]| {
        let [all, vram, ram, streamed, disk] = columns;
        let vram = if it.gpu.is_some() { format!(" {vram:>14}") } else { String::new() };
        format!("{what:<13} {all:>10}{vram} {ram:>14} {streamed:>14} {disk:>14}")
    };
    let head = ["size", "stays in VRAM", "stays in RAM", "streams", "on the drives"].map(str::to_owned);
    let mut lines = vec![row("what", head)];
    for place in &it.places {
        let columns = [place.bytes, place.in_vram, place.in_ram, place.streamed, place.on_disk].map(human);
        lines.push(row(place.what, columns));
    }
    lines
}

fn step(it: &Report) -> Vec<String> {
    let Step { seconds: time, lower_bound_seconds, .. } = it.step;
    let mut lines = vec![line(
        "time",
        &format!(
            "predicted: {} a step, {}; at least {} with this traffic",
            seconds(time),
            tokens_per_s(it.tokens() as f64, time),
            seconds(lower_bound_seconds)
        ),
    )];
    for phase in it.step.phases.iter().filter(|phase| phase.seconds > 0.0) {
        let text = format!(
            "{:>12}, {:>3.0}%; bound by {}{}",
            seconds(phase.seconds),
            100.0 * phase.seconds / time,
            phase.binding.name(),
            match phase.wait_seconds {
                wait if wait < 0.01 * phase.seconds => String::new(),
                wait => format!("; waits {} for pages", seconds(wait)),
            }
        );
        lines.push(line(&format!("  {}", phase.phase.name()), &text));
    }
    if let Some(gpu) = &it.gpu {
        let moved = format!(
            "predicted: a step uploads {} and downloads {}: {:.2} and {:.2} bytes a parameter; \
             the GPU computes {} of {}",
            human(gpu.upload_bytes),
            human(gpu.download_bytes),
            gpu.up_per_parameter,
            gpu.down_per_parameter,
            seconds(gpu.compute_seconds),
            seconds(time)
        );
        lines.push(line("link", &moved));
    }
    if it.limits.drives > 0 {
        let moved = format!(
            "predicted: a step reads {} and writes {}: {:.2} and {:.2} bytes a parameter; a commit adds {}{}",
            human(it.step.disk_read_bytes),
            human(it.step.disk_write_bytes),
            it.step.read_per_parameter,
            it.step.written_per_parameter,
            human(it.step.commit_bytes),
            match it.step.commit_seconds {
                time if time < 0.001 => String::new(),
                time => format!(" and {}", seconds(time)),
            }
        );
        lines.push(line("traffic", &moved));
    }
    if let Some(update) = it.update_only_seconds {
        lines.push(line("last update", &format!("predicted: {}, once, at the end or at a stop", seconds(update))));
    }
    lines
}

/// The run, or 1,000 steps where its length is not known.
fn totals(it: &Report) -> Vec<String> {
    let drives = it.limits.drives;
    let whole = it.totals.iter().map(|totals| {
        let data = match totals.data_tokens {
            None => String::new(),
            Some(tokens) if totals.is_estimated => {
                format!(" on about {} tokens (4 bytes each, no tokenizer)", count(tokens))
            }
            Some(tokens) => format!(" on {} tokens", count(tokens)),
        };
        format!("predicted: {}{data}: {}", steps(totals.steps), run(totals, drives))
    });
    let part = it.thousand.iter().map(|totals| {
        format!("predicted: {}: {}; for a whole run give --data or --steps", steps(totals.steps), run(totals, drives))
    });
    whole.chain(part).map(|text| line("run", &text)).collect()
}

/// A time of up to years.
fn long(time: f64) -> String {
    if time >= 2.0 * DAY { format!("{:.1} days", time / DAY) } else { seconds(time) }
}

fn run(totals: &Totals, drives: u64) -> String {
    let time = long(totals.seconds);
    if drives == 0 {
        return time;
    }
    let life = match totals.drive_life_percent {
        Some(percent) => format!("{}% of each drive's rated life", digits(percent)),
        None => "share of the drives' rated life unknown (--tbw)".to_owned(),
    };
    let stopped = totals.stopped_after.map_or(String::new(), |steps| {
        format!("; --max-writes stops it, resumable, after about {} of them", count(steps))
    });
    format!("{time}, {} written, {life}{stopped}", decimal(totals.written_bytes))
}

fn what_if(it: &WhatIf) -> String {
    format!("{}: {:.2} times as fast", it.change, it.times_faster)
}

#[cfg(test)]
mod tests;
