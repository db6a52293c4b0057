//! A report as lines for a terminal.

use super::gpu::{Found, GpuReport};
use super::memory::Memory;
use super::options;
use super::report::{Against, CellReport, PathReport, Report, Sustained};
use super::summary::Summary;
use super::verdict::{Best, Model, Verdict, binding};
use crate::machine::checks::Check;
use crate::machine::host::Host;
use crate::machine::link::Link;
use crate::machine::place::Place;
use crate::table::{count, line, parameters, seconds};
use mt_trainer::measure::updates::ELEMENT_BYTES;
use mt_trainer::run::size::human;

/// A long write that is shorter says nothing of what lasts.
const SHORT_S: f64 = 5.0;

/// All lines.
pub fn report(report: &Report) -> Vec<String> {
    let host = &report.host;
    let mut out = vec![line(
        "machine",
        &format!("{}, {} cores, {}, Linux {}", host.processor, host.cores, human(host.ram_bytes), host.kernel),
    )];
    out.push(line("limits", &limits(host)));
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

/// What the system allows.
fn limits(host: &Host) -> String {
    let memory = host.group_memory_bytes.map(|bytes| format!("{} of memory", human(bytes)));
    let cores = host.group_cores.map(|cores| format!("the time of {cores:.1} cores"));
    let group: Vec<String> = memory.into_iter().chain(cores).collect();
    let group = if group.is_empty() { "no limit".to_owned() } else { group.join(" and ") };
    format!(
        "control group: {group}; lockable memory: {}; huge pages: {}; {} available on {} NUMA node{}",
        host.memlock_bytes.map_or("no limit".to_owned(), human),
        host.huge_pages.as_deref().unwrap_or("none"),
        human(host.available_bytes),
        host.numa_nodes.len().max(1),
        if host.numa_nodes.len() > 1 { "s" } else { "" }
    )
}

/// Numbers that are marked.
fn noisy(report: &Report) -> usize {
    let cells = report.paths.iter().flat_map(|path| path.cells.iter().chain(&path.sweep)).map(|cell| &cell.bytes_per_s);
    let variants = report.paths.iter().flat_map(|path| path.variants.iter().filter_map(|it| it.bytes_per_s.as_ref()));
    let memory = report.memory.iter().flat_map(|memory| {
        let copies = memory.copies.iter().map(|copy| &copy.bytes_per_s);
        copies.chain([
            &memory.update_elements_per_s,
            &memory.update_beside_disk_elements_per_s,
            &memory.disk_beside_update_bytes_per_s,
            &memory.checksum_bytes_per_s,
        ])
    });
    let found = report.gpu.iter().filter_map(|gpu| gpu.found.as_ref());
    let gpu = found.flat_map(|found| {
        let copies = found.copies.iter().map(|copy| &copy.bytes_per_s);
        copies.chain(&found.drive_to_gpu_bytes_per_s).chain(&found.gpu_to_drive_bytes_per_s)
    });
    cells.chain(variants).chain(memory).chain(gpu).filter(|rate| rate.noisy).count()
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
                (None, why) => format!("- ({})", why.as_deref().unwrap_or("")),
            };
            out.push(format!("  {:<30} {found:>12}", variant.name).trim_end().to_owned());
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
        None if it.seconds < SHORT_S => format!(
            "{moved}, {:.2} GB/s: too short to meet the end of a fast cache (--size says how much is written){warmth}",
            it.bytes as f64 / 1e9 / it.seconds.max(1e-9)
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
    let each = |copy: &super::memory::Copy| {
        let threads = if copy.threads == 1 { "thread" } else { "threads" };
        format!("{} GB/s by {} {threads}", gb(&copy.bytes_per_s).trim_end(), copy.threads)
    };
    let copies: Vec<String> = memory.copies.iter().map(each).collect();
    let update = |rate: &Summary| {
        format!("{} G elements/s ({:.1} GB/s)", gb(rate).trim_end(), rate.median * ELEMENT_BYTES / 1e9)
    };
    let mut out = vec![
        line("copying", &format!("{}; each byte counted once", copies.join(", "))),
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
    let link = found.link.as_ref().map_or("its link is not told".to_owned(), Link::in_words);
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
    out.extend(pages(report).map(|text| line("pages", &text)));
    for (name, own, best) in
        [("best reads", options::READ, &verdict.best_read), ("best writes", options::WRITE, &verdict.best_write)]
    {
        out.extend(best.as_ref().map(|best| line(name, &self::best(report, best, own))));
    }
    for model in &verdict.models {
        let labels = std::iter::once(model.name.as_str()).chain(std::iter::repeat(""));
        out.extend(labels.zip(self::model(report, model)).map(|(label, text)| line(label, &text)));
    }
    let to_mend = verdict.to_mend();
    match to_mend.as_slice() {
        [] => out.push(line("to mend", "nothing")),
        checks => checks.iter().for_each(|check| out.extend(mend(check))),
    }
    out
}

/// What pages pass through, and which part of it is slowest.
pub fn pages(report: &Report) -> Option<String> {
    let (path, memory) = (report.paths.first()?, report.memory.as_ref()?);
    let (copy, checksums) = (memory.copy_max(), memory.checksum_bytes_per_s.median);
    let (part, rate) = binding(path, copy, checksums)?;
    Some(format!(
        "move at {:.2} GB/s, read and written together, where {part} binds; memory copies {:.1} GB/s, a thread's \
         checksums take {:.1} GB/s",
        rate / 1e9,
        copy / 1e9,
        checksums / 1e9
    ))
}

/// The best block and depth, beside what the engine uses.
pub fn best(report: &Report, best: &Best, own: &str) -> String {
    let path = report.paths.first();
    let is_it = |cell: &&CellReport| (cell.block_bytes, cell.depth) == (best.block_bytes, best.depth);
    let is_noisy = path.is_some_and(|path| path.sweep.iter().filter(is_it).any(|cell| cell.bytes_per_s.noisy));
    let usual = path.and_then(|path| path.cell(own)).map(|cell| {
        let rate = cell.bytes_per_s.median / 1e9;
        format!("; runs use {} with {}: {rate:.2} GB/s", block(cell.block_bytes), cell.depth)
    });
    format!(
        "{} with {} in flight: {:.2} GB/s{}{}",
        block(best.block_bytes),
        best.depth,
        best.bytes_per_s / 1e9,
        if is_noisy { " (noisy: others may be as good)" } else { "" },
        usual.unwrap_or_default()
    )
}

/// A model's step in words, thought by thought.
pub fn model(report: &Report, model: &Model) -> Vec<String> {
    if let Some(why) = &model.refused {
        return vec![format!("not planned: {why}")];
    }
    let gpu = model
        .hiding_tokens_gpu
        .map_or(String::new(), |tokens| format!(", {} on the GPU at its full rate", count(tokens)));
    let hiding = match model.hiding_tokens {
        0 => "the update alone hides the drive".to_owned(),
        tokens => format!("from {} tokens a step on computing hides the drive", count(tokens)),
    };
    let life = model.steps_per_1000_tb.map_or("a step writes nothing".to_owned(), |steps| {
        let written = decimal(model.written_bytes);
        format!("{written} written a step: {} steps for each 1,000 TB that a drive may write", count(steps))
    });
    let free = free_bytes(report);
    let room = if model.disk_bytes > free { format!(", and {} are free", decimal(free)) } else { String::new() };
    vec![
        format!(
            "predicted: {} a step of {} tokens ({} parameters), bound by {}",
            seconds(model.seconds),
            count(model.tokens),
            parameters(model.parameters),
            model.binding
        ),
        hiding + &gpu,
        life,
        format!("needs {} on the drives{room}", decimal(model.disk_bytes)),
    ]
}

/// What is free on the file systems that were measured.
fn free_bytes(report: &Report) -> u64 {
    let mut places: Vec<&Place> = report.paths.iter().flat_map(|path| &path.places).collect();
    places.sort_unstable_by_key(|place| (&place.source, &place.mount));
    places.dedup_by_key(|place| (&place.source, &place.mount));
    places.iter().map(|place| place.free_bytes).sum()
}

/// Bytes in the units that drives are sold in.
fn decimal(bytes: u64) -> String {
    let gb = bytes as f64 / 1e9;
    if gb >= 1e3 { format!("{:.2} TB", gb / 1e3) } else { format!("{gb:.1} GB") }
}

fn mend(check: &Check) -> Vec<String> {
    let mut out = vec![line("to mend", &format!("{}: {}", check.what, check.found))];
    out.extend(check.remedy.as_ref().map(|remedy| line("", &format!("-> {remedy}"))));
    out
}
