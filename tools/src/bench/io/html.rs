//! A report as one HTML page that needs no other file, no script and no network.

use super::gpu::GpuReport;
use super::options::{READ, WRITE};
use super::plot::{bar, heat_map, latency_curves, write_line};
use super::report::{CellReport, PathReport, Report};
use super::summary::Summary;
use super::text::{self, block, us};
use super::verdict::Verdict;
use crate::machine::checks::Level;
use crate::report_page::html::{escape, section, table, tile};
use crate::table::seconds;
use mt_trainer::measure::updates::ELEMENT_BYTES;
use mt_trainer::run::size::human;

const STYLE: &str = include_str!("../../report_page/page.css");
const OWN_STYLE: &str = include_str!("page.css");

/// The page.
pub fn page(report: &Report) -> String {
    let host = &report.host;
    let mut body = format!(
        "<header><h1>What this machine moves</h1><p>{} &middot; {} cores &middot; {} &middot; Linux {} &middot; {} \
         &middot; {}, effort {}</p></header>\n",
        escape(&host.processor),
        host.cores,
        human(host.ram_bytes),
        escape(&host.kernel),
        escape(&report.date),
        escape(&report.program),
        escape(&report.effort)
    );
    body.push_str(&tiles(report));
    if let Some(verdict) = &report.verdict {
        body.push_str(&section("Verdict", &(pages(report) + &self::verdict(report, verdict))));
    }
    report.paths.iter().for_each(|path| body.push_str(&self::path(path)));
    body.push_str(&memory(report));
    report.gpu.iter().for_each(|gpu| body.push_str(&section("GPU", &self::gpu(gpu))));
    let end = format!("measured in {}, {} written", seconds(report.seconds), human(report.written_bytes));
    body.push_str(&format!("<p class=\"note\">{end}; ~ marks numbers whose repeats lie more than a quarter apart</p>"));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>mt-bench io, {}</title>\
         <style>{STYLE}{OWN_STYLE}</style></head>\n<body><main>\n{body}</main></body></html>\n",
        escape(&report.date)
    )
}

fn gb(rate: &Summary) -> String {
    format!("{:.2}{}", rate.median / 1e9, if rate.noisy { "~" } else { "" })
}

fn tiles(report: &Report) -> String {
    let mut out = String::from("<div class=\"tiles\">");
    if let Some(path) = report.paths.first() {
        for (label, name) in [
            ("read, GB/s", super::options::READ),
            ("overwrite, GB/s", super::options::WRITE),
            ("both at once, GB/s", super::options::MIXED),
            ("4 KiB read", super::options::SMALL_READ),
        ] {
            let Some(cell) = path.cell(name) else { continue };
            let is_small = name == super::options::SMALL_READ;
            let latency = cell.latency.map_or(String::new(), |latency| us(latency.p50_us));
            let number = if is_small { latency } else { gb(&cell.bytes_per_s) };
            let note = if is_small { "median, one at a time" } else { "1 MiB, 32 in flight" };
            out.push_str(&tile(label, &number, note));
        }
    }
    if let Some(memory) = &report.memory {
        let copy = format!("{:.2}", memory.copy_max() / 1e9);
        out.push_str(&tile("copying, GB/s", &copy, "each byte counted once"));
        let update = format!("{:.2}", memory.update_elements_per_s.median / 1e9);
        let note = format!("{:.0} GB/s through memory", memory.update_elements_per_s.median * ELEMENT_BYTES / 1e9);
        out.push_str(&tile("AdamW, G elements/s", &update, &note));
    }
    out + "</div>\n"
}

/// What pages pass through, in a sentence.
fn pages(report: &Report) -> String {
    text::pages(report).map_or(String::new(), |found| format!("<p>Pages {}.</p>", escape(&found)))
}

fn verdict(report: &Report, verdict: &Verdict) -> String {
    let mut out = String::new();
    let best = [("reads", READ, &verdict.best_read), ("writes", WRITE, &verdict.best_write)];
    for (name, own, best) in best {
        let Some(best) = best else { continue };
        out.push_str(&format!("<p>Best {name}: {}.</p>", escape(&text::best(report, best, own))));
    }
    let rows: Vec<Vec<String>> = verdict
        .models
        .iter()
        .map(|model| vec![escape(&model.name), escape(&text::model(report, model).join("\n")).replace('\n', "<br>")])
        .collect();
    if !rows.is_empty() {
        out.push_str(&table(&["model", "a step, predicted with these rates"], &rows));
    }
    let rows: Vec<Vec<String>> = verdict
        .checks
        .iter()
        .map(|check| {
            let class = match check.level {
                Level::Good => "good",
                Level::Note => "noted",
                Level::Bad => "bad",
            };
            let remedy = check.remedy.as_ref().map_or(String::new(), |text| format!("<code>{}</code>", escape(text)));
            let what = format!("<i class=\"level {class}\"></i>{}", escape(&check.what));
            vec![what, escape(&check.found), remedy]
        })
        .collect();
    out + "<h3>Checks</h3>" + &table(&["what", "found", "what mends it"], &rows)
}

fn path(path: &PathReport) -> String {
    let mut out = String::from("<dl>");
    let mut fact = |name: &str, text: String| out.push_str(&format!("<dt>{name}</dt><dd>{}</dd>", escape(&text)));
    if let [place] = path.places.as_slice() {
        fact("file system", format!("{} on {} ({})", place.file_system, place.source, place.options.join(",")));
        place.devices_in_words().into_iter().for_each(|device| fact("device", device));
        place.warnings.iter().for_each(|warning| fact("warning", warning.clone()));
    }
    let way = if path.direct { "direct I/O" } else { "through the page cache" };
    fact("file", format!("{}, {way}, alignment {}, engine {}", human(path.file_bytes), path.alignment, path.engine));
    path.notices.iter().for_each(|notice| fact("notice", notice.clone()));
    if let Some(sync) = &path.sync_s {
        fact(
            "durable",
            format!("{:.2} ms for 4 KiB ({:.2} to {:.2})", sync.median * 1e3, sync.low * 1e3, sync.high * 1e3),
        );
    }
    out.push_str("</dl>");
    out.push_str("<h3>Patterns</h3>");
    out.push_str(&patterns(&path.cells));
    for rw in ["read", "write"] {
        let cells: Vec<&CellReport> = path.sweep.iter().filter(|cell| cell.rw == rw).collect();
        if cells.is_empty() {
            continue;
        }
        out.push_str(&format!("<h3>{rw}: GB/s by block (down) and transfers in flight (across)</h3>"));
        out.push_str(&heat_map(&cells, &format!("{rw} rates by block and depth")));
        out.push_str(&format!(
            "<h3>{rw}: latency by transfers in flight; half of them, and dashed 99 of a hundred</h3>"
        ));
        out.push_str(&latency_curves(&cells, &format!("{rw} latencies by depth")));
    }
    if let Some(sustained) = &path.sustained {
        out.push_str("<h3>A long write: GB/s over time</h3>");
        out.push_str(&write_line(&sustained.line, sustained.knee.as_ref(), "rate of a long write"));
        out.push_str(&format!("<p class=\"note\">{}</p>", escape(&text::sustained(sustained))));
    }
    if !path.variants.is_empty() {
        out.push_str("<h3>What settings are worth: reads of 1 MiB, 32 in flight</h3>");
        let rates = path.variants.iter().filter_map(|variant| variant.bytes_per_s.as_ref());
        let most = rates.map(|rate| rate.high).fold(0.0, f64::max);
        let rows: Vec<Vec<String>> = path
            .variants
            .iter()
            .map(|variant| {
                let found = match &variant.bytes_per_s {
                    Some(rate) => [gb(rate), bar(rate, most)],
                    None => ["-".to_owned(), escape(variant.refused.as_deref().unwrap_or(""))],
                };
                [vec![escape(&variant.name)], found.to_vec()].concat()
            })
            .collect();
        out.push_str(&table(&["setting", "GB/s", ""], &rows));
    }
    if !path.against.is_empty() {
        out.push_str("<h3>Against fio, in turns on the same file</h3>");
        let rows: Vec<Vec<String>> = path.against.iter().map(|it| vec![escape(&text::against(it))]).collect();
        out.push_str(&table(&["ratio of the engine's rate to fio's"], &rows));
    }
    section(&escape(&path.name()), &out)
}

fn patterns(cells: &[CellReport]) -> String {
    let most = cells.iter().map(|cell| cell.bytes_per_s.high).fold(0.0, f64::max);
    let rows: Vec<Vec<String>> = cells
        .iter()
        .map(|cell| {
            let times = cell.latency.map_or([String::new(), String::new(), String::new()], |latency| {
                [us(latency.p50_us), us(latency.p99_us), us(latency.max_us)]
            });
            let name = format!("<span title=\"{}\">{}</span>", escape(&cell.fio), escape(&cell.name));
            let what = format!("{} {} x {}", escape(&cell.rw), block(cell.block_bytes), cell.depth);
            let cpu = format!("{:.3}", cell.cpu_s_per_gb);
            [vec![name, what, gb(&cell.bytes_per_s), bar(&cell.bytes_per_s, most)], times.to_vec(), vec![cpu]].concat()
        })
        .collect();
    table(&["pattern", "", "GB/s", "", "p50", "p99", "longest", "core s a GB"], &rows)
}

fn memory(report: &Report) -> String {
    let Some(memory) = &report.memory else { return String::new() };
    let mut rows: Vec<Vec<String>> = memory
        .copies
        .iter()
        .map(|copy| vec![format!("copying by {} threads, bytes copied", copy.threads), gb(&copy.bytes_per_s) + " GB/s"])
        .collect();
    let update = |name: &str, rate: &Summary| {
        let number = format!("{:.2} G elements/s, {:.1} GB/s", rate.median / 1e9, rate.median * ELEMENT_BYTES / 1e9);
        vec![name.to_owned(), number]
    };
    rows.push(update("AdamW on split weights", &memory.update_elements_per_s));
    let disk = gb(&memory.disk_beside_update_bytes_per_s);
    let name = format!("the same beside the drive at {disk} GB/s");
    rows.push(update(&name, &memory.update_beside_disk_elements_per_s));
    rows.push(vec!["checksums by one thread".to_owned(), gb(&memory.checksum_bytes_per_s) + " GB/s"]);
    section("Memory and cores", &table(&["what", "rate"], &rows))
}

fn gpu(gpu: &GpuReport) -> String {
    let Some(found) = &gpu.found else {
        return format!("<p class=\"none\">{}</p>", escape(gpu.absent.as_deref().unwrap_or("")));
    };
    let link = found.link.as_ref().map_or(String::new(), crate::machine::link::Link::in_words);
    let head = format!("{}, {}, {link}; {}", found.name, human(found.memory_bytes), found.versions.join(", "));
    let most = found.copies.iter().map(|copy| copy.bytes_per_s.high).fold(0.0, f64::max);
    let copies: Vec<Vec<String>> = found
        .copies
        .iter()
        .map(|copy| {
            let piece = format!("{} x {}", block(copy.piece_bytes as u32), copy.streams);
            vec![copy.way.clone(), copy.memory.clone(), piece, gb(&copy.bytes_per_s), bar(&copy.bytes_per_s, most)]
        })
        .collect();
    let products: Vec<Vec<String>> = found
        .products
        .iter()
        .map(|product| vec![product.precision.clone(), format!("{:.0}", product.operations_per_s.median / 1e12)])
        .collect();
    let through = match (&found.drive_to_gpu_bytes_per_s, &found.gpu_to_drive_bytes_per_s) {
        (Some(up), Some(down)) => format!("Drive through RAM to GPU: {} GB/s, back {} GB/s. ", gb(up), gb(down)),
        _ => String::new(),
    };
    format!(
        "<p>{}</p><h3>Copies</h3>{}<h3>Products of {} x {}</h3>{}<p class=\"note\">{through}GPUDirect Storage: {}</p>",
        escape(&head),
        table(&["way", "memory", "piece x streams", "GB/s", ""], &copies),
        found.products.first().map_or(0, |product| product.side),
        found.products.first().map_or(0, |product| product.side),
        table(&["precision", "T operations/s"], &products),
        escape(&found.direct_storage)
    )
}
