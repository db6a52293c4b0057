//! A report as lines for a terminal.

use super::gpu::{Found, GpuReport};
use super::memory::Memory;
use super::report::{Against, CellReport, PathReport, Report, Sustained};
use super::summary::Summary;
use super::verdict::{Model, Verdict, binding};
use crate::machine::checks::Check;
use crate::table::{count, line, parameters, seconds};
use mt_trainer::measure::updates::ELEMENT_BYTES;
use mt_trainer::run::size::human;

/// All lines.
pub fn report(report: &Report) -> Vec<String> {
    let host = &report.host;
    let mut out = vec![line(
        "machine",
        &format!("{}, {} cores, {}, Linux {}", host.processor, host.cores, human(host.ram_bytes), host.kernel),
    )];
    for path in &report.paths {
        out.push(String::new());
        out.extend(self::path(path));
    }
    if let Some(memory) = &report.memory {
        out.push(String::new());
        out.extend(self::memory(memory));
    }
    if let Some(gpu) = &report.gpu {
        out.extend(self::gpu(gpu));
    }
    if let Some(verdict) = &report.verdict {
        out.push(String::new());
        out.extend(self::verdict(report, verdict));
    }
    out.push(String::new());
    let noisy = noisy(report);
    if noisy > 0 {
        let numbers = if noisy == 1 { "number" } else { "numbers" };
        out.push(line("noisy", &format!("{noisy} {numbers}, marked ~: repeats lie more than a quarter apart")));
    }
    out.push(line("done", &format!("in {}, {} written", seconds(report.seconds), human(report.written_bytes))));
    out
}

fn noisy(report: &Report) -> usize {
    let cells = report.paths.iter().flat_map(|path| path.cells.iter().chain(&path.sweep));
    cells.filter(|cell| cell.bytes_per_s.noisy).count()
}

fn path(path: &PathReport) -> Vec<String> {
    let mut out = vec![line("path", &path.name())];
    if let [place] = path.places.as_slice() {
        out.push(line(
            "file system",
            &format!(
                "{} on {}, mounted at {} ({}), {} free",
                place.file_system,
                place.source,
                place.mount.display(),
                place.options.join(","),
                human(place.free_bytes)
            ),
        ));
        out.extend(place.devices_in_words().iter().map(|device| line("device", device)));
        let life = place.written_bytes.map(|bytes| format!("{} to this file system in its life", human(bytes)));
        let since = place.devices.first().and_then(|device| device.written_since_start_bytes);
        let since = since.map(|bytes| format!("{} to the device since the system started", human(bytes)));
        let parts: Vec<String> = life.into_iter().chain(since).collect();
        if !parts.is_empty() {
            out.push(line("written", &parts.join(", ")));
        }
        out.extend(place.warnings.iter().map(|warning| line("warning", warning)));
    }
    out.push(line(
        "measured",
        &format!(
            "a file of {} without a name, {}, alignment {}, engine {}",
            human(path.file_bytes),
            if path.direct { "direct I/O" } else { "through the page cache" },
            path.alignment,
            path.engine
        ),
    ));
    out.extend(path.notices.iter().map(|notice| line("notice", notice)));
    out.push(String::new());
    out.extend(cells(&path.cells));
    if !path.sweep.is_empty() {
        out.extend(sweep(&path.sweep));
    }
    if !path.variants.is_empty() {
        out.push(String::new());
        out.push(format!("{:<32} {:>12}", "reads of 1 MiB, 32 at a time", "GB/s"));
        for variant in &path.variants {
            let found = match (&variant.bytes_per_s, &variant.refused) {
                (Some(rate), _) => gb(rate),
                (None, why) => format!("- {}", why.as_deref().unwrap_or("")),
            };
            out.push(format!("  {:<30} {found:>12}", variant.name));
        }
    }
    if let Some(sync) = &path.sync_s {
        let text = format!(
            "{:.2} ms to make 4 KiB durable ({:.2} to {:.2})",
            sync.median * 1e3,
            sync.low * 1e3,
            sync.high * 1e3
        );
        out.push(line("sync", &text));
    }
    out.extend(path.sustained.as_ref().map(|sustained| line("long write", &self::sustained(sustained))));
    out.extend(path.against.iter().map(|against| line("against fio", &self::against(against))));
    out
}

/// GB a second, marked if noisy.
fn gb(rate: &Summary) -> String {
    format!("{:.3}{}", rate.median / 1e9, if rate.noisy { "~" } else { " " })
}

fn cells(cells: &[CellReport]) -> Vec<String> {
    let mut out = vec![format!(
        "{:<32} {:>9} {:>6} {:>6}  {:>8} {:>17} {:>9} {:>9} {:>9}",
        "pattern", "rw", "block", "depth", "GB/s", "low .. high", "p50", "p99", "CPU s/GB"
    )];
    for cell in cells {
        let (p50, p99) = cell.latency.map_or((String::new(), String::new()), |l| (us(l.p50_us), us(l.p99_us)));
        let rate = &cell.bytes_per_s;
        out.push(format!(
            "  {:<30} {:>9} {:>6} {:>6}  {:>8} {:>17} {p50:>9} {p99:>9} {:>9.3}",
            cell.name,
            cell.rw,
            block(cell.block_bytes),
            cell.depth,
            gb(rate),
            format!("{:.3} .. {:.3}", rate.low / 1e9, rate.high / 1e9),
            cell.cpu_s_per_gb
        ));
    }
    out
}

/// A block's size.
pub fn block(bytes: u32) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{}M", bytes >> 20) } else { format!("{}K", bytes >> 10) }
}

/// Microseconds, or milliseconds.
pub fn us(us: f64) -> String {
    if us < 1_000.0 { format!("{us:.0} us") } else { format!("{:.2} ms", us / 1e3) }
}

/// Tables of bytes a second by block (down) and depth (across).
fn sweep(cells: &[CellReport]) -> Vec<String> {
    let mut out = Vec::new();
    for rw in ["read", "write"] {
        let of: Vec<&CellReport> = cells.iter().filter(|cell| cell.rw == rw).collect();
        if of.is_empty() {
            continue;
        }
        let (blocks, depths) = axes(&of);
        out.push(String::new());
        let head: String = depths.iter().map(|depth| format!(" {depth:>8}")).collect();
        out.push(format!("{:<16}{head}", format!("{rw}, GB/s")));
        for wanted in blocks {
            let row = depths.iter().map(|depth| {
                let found = of.iter().find(|cell| cell.block_bytes == wanted && cell.depth == *depth);
                format!(" {:>8}", found.map_or(String::new(), |cell| gb(&cell.bytes_per_s)))
            });
            out.push(format!("  {:<14}{}", block(wanted), row.collect::<String>().trim_end()));
        }
    }
    out.push("  (blocks down, transfers in flight across)".to_owned());
    out
}

/// Blocks and depths that occur, in order.
pub fn axes(cells: &[&CellReport]) -> (Vec<u32>, Vec<u32>) {
    let sorted = |mut values: Vec<u32>| {
        values.sort_unstable();
        values.dedup();
        values
    };
    (sorted(cells.iter().map(|cell| cell.block_bytes).collect()), sorted(cells.iter().map(|cell| cell.depth).collect()))
}

/// A long write in words.
pub fn sustained(it: &Sustained) -> String {
    let moved = format!("{} in {}", human(it.bytes), seconds(it.seconds));
    let warmth = it.temperatures_c.map_or(String::new(), |(from, to)| format!("; {from:.0} C before, {to:.0} C after"));
    match &it.knee {
        Some(knee) => format!(
            "{moved}: {:.2} GB/s for the first {}, then {:.2} GB/s: the fast cache ends there{warmth}",
            knee.before_bytes_per_s / 1e9,
            human(knee.bytes as u64),
            knee.after_bytes_per_s / 1e9
        ),
        None => format!(
            "{moved}: no drop, {:.2} GB/s in the second half; a fast cache may be larger (--size says how much is \
             written){warmth}",
            it.lasting_bytes_per_s / 1e9
        ),
    }
}

/// A comparison in words.
pub fn against(it: &Against) -> String {
    format!(
        "{:<9} ratio {:.3} (90% interval {:.3} to {:.3}), engine {:.3} GB/s, {} {:.3} GB/s, {} pairs of {:.1} s{}",
        it.rw,
        it.ratio,
        it.low,
        it.high,
        it.engine_bytes_per_s / 1e9,
        it.program,
        it.fio_bytes_per_s / 1e9,
        it.pairs,
        it.seconds,
        if it.huge_pages { "" } else { ", its buffers in pages of 4 KiB" }
    )
}

fn memory(memory: &Memory) -> Vec<String> {
    let each = |copy: &super::memory::Copy| format!("{} GB/s by {}", gb(&copy.bytes_per_s).trim_end(), copy.threads);
    let copies: Vec<String> = memory.copies.iter().map(each).collect();
    let update = |rate: &Summary| {
        format!("{} G elements/s ({:.1} GB/s)", gb(rate).trim_end(), rate.median * ELEMENT_BYTES / 1e9)
    };
    let mut out = vec![
        line("copying", &format!("{} threads, bytes copied", copies.join(", "))),
        line(
            "page update",
            &format!("AdamW {} on {} threads", update(&memory.update_elements_per_s), memory.update_threads),
        ),
    ];
    let (rate, disk) = (&memory.update_beside_disk_elements_per_s, &memory.disk_beside_update_bytes_per_s);
    out.push(line("", &format!("{} beside the drive at {} GB/s", update(rate), gb(disk).trim_end())));
    out.push(line("checksums", &format!("{} GB/s by one thread", gb(&memory.checksum_bytes_per_s).trim_end())));
    out
}

fn gpu(gpu: &GpuReport) -> Vec<String> {
    match (&gpu.found, &gpu.absent) {
        (Some(found), _) => self::found(found),
        (None, why) => vec![line("GPU", &format!("none measured: {}", why.as_deref().unwrap_or("not asked for")))],
    }
}

fn found(found: &Found) -> Vec<String> {
    let link = found.link.as_ref().map_or("its link is not told".to_owned(), crate::machine::place::Link::in_words);
    let mut out = vec![
        String::new(),
        line("GPU", &format!("{}, {}, {link}; {}", found.name, human(found.memory_bytes), found.versions.join(", "))),
        format!("{:<32} {:>9} {:>8} {:>10}", "copies", "piece", "streams", "GB/s"),
    ];
    for copy in &found.copies {
        let name = format!("{}, {}", copy.way, copy.memory);
        let piece = block(copy.piece_bytes as u32);
        out.push(format!("  {name:<30} {piece:>9} {:>8} {:>10}", copy.streams, gb(&copy.bytes_per_s)));
    }
    let products = found
        .products
        .iter()
        .map(|product| format!("{} {:.0} T operations/s", product.precision, product.operations_per_s.median / 1e12));
    out.push(line("products", &products.collect::<Vec<_>>().join(", ")));
    if let (Some(up), Some(down)) = (&found.drive_to_gpu_bytes_per_s, &found.gpu_to_drive_bytes_per_s) {
        let text = format!("{} GB/s through RAM to the GPU, {} back", gb(up).trim_end(), gb(down).trim_end());
        out.push(line("drive", &text));
    }
    out.push(line("GPUDirect", &found.direct_storage));
    out
}

fn verdict(report: &Report, verdict: &Verdict) -> Vec<String> {
    let mut out = Vec::new();
    if let (Some(path), Some(memory)) = (report.paths.first(), &report.memory)
        && let Some((part, rate)) = binding(path, memory.copy_max(), memory.checksum_bytes_per_s.median)
    {
        out.push(line("binds", &format!("{part}, at {:.2} GB/s read and written together", rate / 1e9)));
    }
    for (name, best) in [("best reads", &verdict.best_read), ("best writes", &verdict.best_write)] {
        if let Some(best) = best {
            let text = format!(
                "{} with {} in flight: {:.2} GB/s",
                block(best.block_bytes),
                best.depth,
                best.bytes_per_s / 1e9
            );
            out.push(line(name, &text));
        }
    }
    out.extend(verdict.models.iter().map(|model| line(&model.name, &self::model(model))));
    let to_mend = verdict.to_mend();
    match to_mend.as_slice() {
        [] => out.push(line("to mend", "nothing")),
        checks => checks.iter().for_each(|check| out.extend(mend(check))),
    }
    out
}

/// A model's step in words.
pub fn model(model: &Model) -> String {
    if let Some(why) = &model.refused {
        return format!("not planned: {why}");
    }
    let gpu = model
        .hiding_tokens_gpu
        .map_or(String::new(), |tokens| format!(", {} on the GPU at its full rate", count(tokens)));
    let hiding = match model.hiding_tokens {
        0 => "the update alone hides the drive".to_owned(),
        tokens => format!("from {} tokens a step on computing hides the drive", count(tokens)),
    };
    let life = model.steps_per_1000_tb.map_or("a step writes nothing".to_owned(), |steps| {
        format!(
            "{:.1} GB written a step: {} steps for each 1,000 TB that a drive may write",
            model.written_bytes as f64 / 1e9,
            count(steps)
        )
    });
    format!(
        "predicted: {} a step of {} tokens ({} parameters), bound by {}; {hiding}{gpu}; {life}; {} on the drives",
        seconds(model.seconds),
        count(model.tokens),
        parameters(model.parameters),
        model.binding,
        human(model.disk_bytes)
    )
}

fn mend(check: &Check) -> Vec<String> {
    let mut out = vec![line("to mend", &format!("{}: {}", check.what, check.found))];
    out.extend(check.remedy.as_ref().map(|remedy| line("", &format!("-> {remedy}"))));
    out
}
