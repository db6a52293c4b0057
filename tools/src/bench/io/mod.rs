//! `mt-bench io`: what this machine's drives, memory, cores and GPU do for moving pages, and what follows from it.
//!
//! What is measured is the engine's own way to the drives ([`mt_engine::bench`]); another library is a row beside it.
//! It writes only into files of its own that have no names, so nothing is left in whatever way it ends.
//!
//! Terms: *pattern*, one kind of transfer (direction, order, block, depth); *sweep*, a table of patterns by block and
//! depth; *effort*, how much is measured; *place*, a path and what it is.

mod against;
mod compare;
mod disk;
mod gpu;
mod html;
mod memory;
mod options;
mod plot;
mod profile;
mod report;
mod rival;
mod summary;
mod sustained;
mod text;
mod through;
mod variants;
mod verdict;
mod watch;

use super::args::Io;
use crate::failure::Failure;
use crate::machine::host::Host;
use crate::machine::place::Place;
use crate::say;
use crate::values::all_threads;
use disk::Disk;
use mt_engine::bench::Cell;
use mt_trainer::profile::probe::today;
use mt_trainer::run::size::human;
use options::{Effort, FREE_PART, FULL, QUICK, USUAL};
use report::{Report, VERSION};
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use summary::middle;
pub use through::Through;
use watch::Watch;

/// Files of a path are a multiple of this: every block divides it.
const FILE_UNIT: u64 = 16 << 20;

/// Time of a measurement of one pattern alone.
const CELL_TIME: Duration = Duration::from_secs(10);

/// Time of a measurement against fio.
const AGAINST_TIME: Duration = Duration::from_secs(5);

/// Runs it.
pub fn run(args: &Io) -> Result<u8, Failure> {
    if let [first, second] = args.compare.as_slice() {
        let (lines, value) = compare::compare(first, second)?;
        match &args.json {
            Some(to) => write(to, &(value.to_string() + "\n"))?,
            None => lines.iter().for_each(say::out),
        }
        return Ok(0);
    }
    let effort = if args.quick {
        QUICK
    } else if args.full {
        FULL
    } else {
        USUAL
    };
    for to in args.json.iter().chain(&args.html) {
        has_folder(to)?;
    }
    let places = places(&args.paths)?;
    let (cell, gpu) = (args.cell(), args.gpu()?);
    let bytes = file_bytes(args, &effort, &places, cell.is_some())?;
    let expected = expected_seconds(args, &effort, bytes, places.len(), cell.is_some());
    let watch = Watch::new(expected, args.json.as_deref() == Some(Path::new("-")))?;
    let report = match &cell {
        Some(cell) => one_cell(args, cell, &places, bytes, &watch),
        None => everything(args, gpu, &effort, &places, bytes, &watch),
    };
    watch.end();
    let report = report?;
    if args.json.as_deref() != Some(Path::new("-")) {
        text::report(&report).iter().for_each(say::out);
    }
    if let Some(to) = &args.json {
        write(to, &report.to_json())?;
    }
    if let Some(to) = &args.html {
        write(to, &html::page(&report))?;
    }
    Ok(0)
}

/// Looks at the paths, which must be folders.
fn places(paths: &[PathBuf]) -> Result<Vec<Place>, Failure> {
    let here = [PathBuf::from(".")];
    let paths = if paths.is_empty() { &here[..] } else { paths };
    let place = |path: &PathBuf| {
        let refuse = |what: String| Failure::input(format!("{}: {what}", path.display()));
        if !path.exists() {
            return Err(refuse("expected a folder, found nothing; make it with mkdir".to_owned()));
        }
        if !path.is_dir() {
            let found = "a file or device; what is measured is a folder on its file system";
            return Err(refuse(format!("expected a folder, found {found}")));
        }
        let free = mt_engine::free_bytes(path).map_err(disk::failed)?;
        Place::of(path, free).map_err(|error| refuse(error.to_string()))
    };
    paths.iter().map(place).collect()
}

/// Bytes of the file in each place, within what the user agrees to.
fn file_bytes(args: &Io, effort: &Effort, places: &[Place], is_cell: bool) -> Result<u64, Failure> {
    // A file system that holds several of the paths has room for all their files at once.
    let share = |place: &Place| {
        let together = places.iter().filter(|other| other.source == place.source && other.mount == place.mount);
        place.free_bytes / together.count().max(1) as u64
    };
    let free = places.iter().map(share).min().unwrap_or(0);
    let polite = (free as f64 * FREE_PART) as u64 / FILE_UNIT * FILE_UNIT;
    let wanted = match args.size {
        Some(bytes) => (bytes / FILE_UNIT * FILE_UNIT).max(FILE_UNIT),
        None => effort.file_bytes.min(polite).max(if is_cell { FILE_UNIT } else { 4 * FILE_UNIT }),
    };
    if wanted > free {
        let text = format!("--size: {} are wanted on each path, {} are free", human(wanted), human(free));
        return Err(Failure::new(text, 3));
    }
    if wanted > polite && !args.yes {
        let part = 100.0 * wanted as f64 / free.max(1) as f64;
        confirm(&format!("{} on each path are {part:.0}% of what is free there", human(wanted)))?;
    }
    Ok(wanted)
}

/// Asks whoever sits before the terminal.
fn confirm(what: &str) -> Result<(), Failure> {
    let refuse = || Failure::input(format!("{what}: say --yes, or less with --size"));
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(refuse());
    }
    _ = write!(std::io::stderr(), "{what}. Go on? [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read {
        Ok(_) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(()),
        _ => Err(refuse()),
    }
}

fn expected_seconds(args: &Io, effort: &Effort, bytes: u64, paths: usize, is_cell: bool) -> f64 {
    let effort = Effort { file_bytes: bytes, ..effort.clone() };
    let time = args.time.unwrap_or(CELL_TIME).as_secs_f64();
    let groups = if paths > 1 { paths + 1 } else { 1 } as f64;
    let fill = bytes as f64 / 1e9;
    let own = match is_cell {
        true => fill + options::REPEATS as f64 * time,
        false => groups * effort.path_seconds() + effort.rest_seconds(all_threads() as u32),
    };
    let against_time = args.time.unwrap_or(AGAINST_TIME).as_secs_f64() + 0.5;
    let cells = if is_cell { 1 } else { against::usual_cells().len() };
    own + if args.against.is_some() { (2 * against::PAIRS * cells) as f64 * against_time } else { 0.0 }
}

fn empty(effort: &str) -> Report {
    Report {
        version: VERSION,
        program: format!("mt-bench {}", env!("CARGO_PKG_VERSION")),
        date: today(),
        effort: effort.to_owned(),
        seconds: 0.0,
        written_bytes: 0,
        host: Host::this(),
        paths: Vec::new(),
        memory: None,
        gpu: None,
        verdict: None,
    }
}

fn one_cell(args: &Io, cell: &Cell, places: &[Place], bytes: u64, watch: &Watch) -> Result<Report, Failure> {
    let mut report = empty("cell");
    for place in places {
        let disk = Disk::open(vec![place.clone()], bytes, args.through(), watch)?;
        let mut path = disk.measure_cell(cell, args.time.unwrap_or(CELL_TIME))?;
        if args.against.is_some() {
            path.against = against::measure(&disk, &[*cell], args.time.unwrap_or(AGAINST_TIME), watch)?;
        }
        report.paths.push(path);
    }
    finish(&mut report, watch);
    Ok(report)
}

fn everything(
    args: &Io,
    gpu: Option<usize>,
    effort: &Effort,
    places: &[Place],
    bytes: u64,
    watch: &Watch,
) -> Result<Report, Failure> {
    let mut report = empty(effort.name);
    let threads = all_threads();
    for (index, place) in places.iter().enumerate() {
        let disk = Disk::open(vec![place.clone()], bytes, args.through(), watch)?;
        let mut path = disk.measure(effort)?;
        if args.against.is_some() {
            path.against = against::measure(&disk, &against::usual_cells(), AGAINST_TIME, watch)?;
        }
        report.paths.push(path);
        if index == 0 {
            watch.part("memory and cores");
            report.memory = Some(memory::measure(threads as u32, disk.ground(), effort, watch)?);
            report.gpu = Some(match gpu {
                Some(index) => gpu::measure(index, disk.ground(), effort, watch)?,
                None => gpu::GpuReport::absent("--gpu none"),
            });
        }
    }
    let singles = report.paths.len();
    if singles > 1 && args.through() != Through::Tokio {
        watch.part("all paths together");
        let disk = Disk::open(places.to_vec(), bytes, args.through(), watch)?;
        report.paths.push(disk.measure(effort)?);
    }
    watch.part("kernels");
    let profile = profile::measure(&report.paths[..singles], threads, effort, watch)?;
    watch.part("plans");
    watch.go_on()?;
    let gpu = report.gpu.as_ref().expect("it was measured with the first path");
    let verdict = verdict::verdict(&report.host, &report.paths[..singles], &profile, gpu, effort.shapes, threads);
    report.verdict = Some(verdict);
    // Plans take seconds, on a busy machine a minute: a stop meanwhile must not replace the saved profile.
    watch.go_on()?;
    if args.save {
        let path = profile::save(&profile)?;
        watch.say(format_args!("saved {}: plans take it from now on", path.display()));
    }
    finish(&mut report, watch);
    Ok(report)
}

fn finish(report: &mut Report, watch: &Watch) {
    report.seconds = watch.elapsed().as_secs_f64();
    report.written_bytes = watch.written();
}

/// Minutes of measuring shall not end with a report that has nowhere to go.
fn has_folder(to: &Path) -> Result<(), Failure> {
    let folder = match to.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if to.is_dir() {
        return Err(Failure::input(format!("{}: expected a file to write, found a folder", to.display())));
    }
    if !folder.is_dir() {
        let text =
            format!("{}: expected a file in a folder that exists, found no folder {}", to.display(), folder.display());
        return Err(Failure::input(text));
    }
    Ok(())
}

/// Writes text to a file, or to stdout for `-`.
fn write(to: &Path, text: &str) -> Result<(), Failure> {
    if to == Path::new("-") {
        say::out(text.trim_end());
        return Ok(());
    }
    std::fs::write(to, text).map_err(|error| Failure::new(format!("{}: {error}", to.display()), 4))
}

#[cfg(test)]
mod tests;
