//! What a run says in words: its plan before, its measurements after. Everything that was not measured carries the word
//! "predicted".

use crate::table::{self, count, line, parameters, rate, seconds, tokens_per_s};
use mt_trainer::run::size::human;
use mt_trainer::run::{Ending, GpuShare, Planned, StepRecord, Summary, VramUse, quoted};
use mt_trainer::target::{Gpu, Target};

/// The lines before the first step.
pub fn plan(planned: &Planned) -> Vec<String> {
    let disk = &planned.prediction.disk;
    let steps = planned.total_steps - planned.first_step;
    let model = format!("{}, {} parameters", planned.model, parameters(planned.parameters));
    let decay = format!("weight decay on {} of them, matrices only", parameters(planned.decayed));
    let data = format!(
        "{} tokens, {} rows of {}, {} left over",
        count(planned.data_tokens),
        count(planned.rows),
        planned.seq_len,
        planned.dropped_tokens
    );
    let length = match planned.first_step {
        0 => table::steps(planned.total_steps),
        first => format!("steps {} to {}", first + 1, planned.total_steps),
    };
    let shape = format!(
        "{} sequences each, {} at a time; {}, {}",
        planned.batch,
        planned.micro_batch,
        if planned.recompute { "recompute" } else { "no recompute" },
        computes(planned)
    );
    let state = format!(
        "{} of weights and moments, {} of gradients",
        human(planned.state_bytes),
        human(planned.gradient_bytes)
    );
    let ram = &planned.ram;
    let parts = format!(
        "{}: program {}, workspace {}, pages {} ({} of them stay)",
        human(ram.budget),
        human(ram.base),
        human(ram.workspace),
        human(ram.arena),
        human(ram.placed)
    );
    let weights = planned.random_seed.map(|seed| line("weights", &format!("random, seed {seed}")));
    let bytes = planned.is_bytes.then(|| line("tokens", "bytes as ids (no tokenizer)"));
    let mut lines = vec![line("run", &planned.run.display().to_string()), line("model", &format!("{model}; {decay}"))];
    lines.extend(weights);
    lines.push(line("data", &data));
    lines.extend(bytes);
    lines.extend([line("length", &format!("{length}, {shape}")), line("state", &state), line("RAM", &parts)]);
    match planned.stores.as_slice() {
        [] => lines.push(line("disk", no_disk(planned.vram_placed, planned.ram.placed))),
        stores => {
            let moved = format!(
                "predicted: a step reads {} and writes {}; {} move{} {}",
                human(disk.read_bytes),
                human(disk.write_bytes),
                table::steps(steps),
                if steps == 1 { "s" } else { "" },
                human(steps.saturating_mul(disk.read_bytes + disk.write_bytes))
            );
            let stores: Vec<String> = stores.iter().map(|store| store.display().to_string()).collect();
            lines.push(line("disk", &format!("{moved}; {}", stores.join(", "))));
        }
    }
    lines.push(line("commits", &commits(planned)));
    lines
}

/// That there is no store, and where the pages are, of which so many bytes stay in VRAM and in RAM.
pub fn no_disk(in_vram: u64, in_ram: u64) -> &'static str {
    match (in_vram > 0, in_ram > 0) {
        (true, true) => "none: all pages stay in VRAM and RAM",
        (true, false) => "none: all pages stay in VRAM",
        (false, _) => "none: all pages stay in RAM",
    }
}

fn commits(planned: &Planned) -> String {
    let written = human(planned.prediction.disk.commit_bytes);
    match planned.checkpoint_every {
        None => "none: a crash, a power loss or a kill loses this run, and it cannot be resumed".to_owned(),
        Some(every) if every >= planned.total_steps => format!("at the end and at a stop; predicted: {written} each"),
        Some(1) => format!("after every step, at the end and at a stop; predicted: {written} each"),
        Some(every) => format!("every {every} steps, at the end and at a stop; predicted: {written} each"),
    }
}

/// A line for a step.
pub fn step(record: &StepRecord, total_steps: u64) -> String {
    let norm = record.grad_norm.map_or(String::new(), |norm| format!("  grad norm {norm:.3}"));
    let moved = match record.disk_read_bytes + record.disk_write_bytes {
        0 => String::new(),
        _ => format!("  disk {} read, {} written", human(record.disk_read_bytes), human(record.disk_write_bytes)),
    };
    let width = total_steps.to_string().len();
    format!(
        "step {:>width$}/{total_steps}  loss {:.4}{norm}  lr {:.2e}  {}  {}{moved}",
        record.step,
        record.loss,
        record.lr,
        seconds(record.seconds),
        tokens_per_s(record.tokens as f64, record.seconds)
    )
}

/// The lines after the last step.
pub fn summary(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    let run = quoted(&summary.run.display().to_string());
    match summary.ending {
        Ending::Done | Ending::Finished => lines.push(format!("done: {}", table::steps(summary.step))),
        Ending::Stopped => lines.push(format!("stopped after step {} of {}", summary.step, summary.total_steps)),
    }
    if let Some((first, last)) = summary.losses {
        lines.push(line("loss", &format!("{first:.4} at the first step, {last:.4} at the last")));
    }
    if let Some((written, given)) = &summary.sample {
        lines.push(line("sample", &format!("given {given:?}, the model writes {written:?}")));
    }
    if summary.steps_here > 0 {
        lines.extend(moved(summary));
    }
    if let Some(VramUse { budget, used }) = summary.vram {
        lines.push(line("VRAM", &format!("{} at the end of a budget of {}", human(used), human(budget))));
    }
    lines.extend(summary.gpu.iter().flat_map(gpu));
    lines.extend(summary.drift.iter().map(|drift| line("drift", drift)));
    match summary.ending {
        Ending::Stopped if summary.is_durable => lines.push(format!("resume: mt resume {run}")),
        Ending::Stopped => lines.push("it cannot be resumed: --durability none makes no commits".to_owned()),
        Ending::Done | Ending::Finished => {}
    }
    lines
}

/// What moved through which tier, measured.
fn moved(summary: &Summary) -> [String; 3] {
    let steps = summary.steps_here;
    let through = |bytes: u64| match bytes {
        0 => "nothing".to_owned(),
        _ => format!("{}, {} a step, {}", human(bytes), human(bytes / steps), rate(bytes, summary.seconds)),
    };
    let ram = format!(
        "{} at the peak of a budget of {}; {} of pages stayed; {}",
        human(summary.peak_ram_bytes),
        human(summary.ram.budget),
        human(summary.ram.placed),
        tokens_per_s(summary.tokens as f64, summary.seconds)
    );
    let waits =
        format!("{}; the computation waited {}", through(summary.disk_read_bytes), seconds(summary.wait_seconds));
    let written = format!("{}; commits {} of it", through(summary.disk_write_bytes), human(summary.commit_bytes));
    [line("RAM", &ram), line("disk read", &waits), line("disk written", &written)]
}

/// What a GPU did, measured by its own clock.
fn gpu(share: &GpuShare) -> [String; 2] {
    let percent = |seconds: f64| format!("{:.1}%", 100.0 * seconds / share.seconds.max(1e-9));
    let waits = (percent(share.times.gpu_link_wait_seconds), percent(share.times.gpu_processor_wait_seconds));
    let busy = format!(
        "busy {} of a step; waits {} for bytes, {} for the processor",
        percent(share.times.busy()),
        waits.0,
        waits.1
    );
    let a_step = |bytes: u64| human(bytes / share.steps.max(1));
    let link = format!("{} a step up, {} down", a_step(share.upload_bytes), a_step(share.download_bytes));
    [line("GPU", &busy), line("link", &link)]
}

/// What computes, and in which numbers.
fn computes(planned: &Planned) -> String {
    match planned.target {
        Target::Cpu => format!("fp32 on {} threads", planned.threads),
        Target::Gpu(Gpu { device, precision }) => {
            format!("{} on cuda:{} beside {} threads", precision.name(), device.0, planned.threads)
        }
    }
}
