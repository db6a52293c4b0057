//! A path, or several at once, measured: patterns, sweep, a long write, the cost of durability; in `variants`, settings
//! of the engine.
//!
//! Repeats of one pattern do not follow each other: each round goes through all patterns, so that a disk that drifts
//! shows in the spread and does not favour one of them.

use super::options::{self, Effort, Pattern, REPEATS, USUAL_BLOCK, USUAL_DEPTH};
use super::report::{CellReport, PathReport, Sustained};
use super::rival;
use super::summary::{Latencies, Summary};
use super::sustained::{Line, knee};
use super::through::Through;
use super::watch::Watch;
use crate::bench::peer::fio;
use crate::failure::Failure;
use crate::machine::place::Place;
use mt_engine::bench::{Cell, Done, Ground, Load, Moved, Setup, UNIT_BYTES};
use mt_engine::{Backend, Error};
use std::path::PathBuf;
use std::time::Duration;

/// Points of a long write's line.
const LINE_POINTS: f64 = 100.0;
/// Points of a long write that are closer than this have a handful of transfers each.
const INTERVAL_MIN: f64 = 0.005;

/// The engine's error as a command's.
pub fn failed(error: Error) -> Failure {
    mt_trainer::Error::from(error).into()
}

/// Paths that are measured at once.
pub struct Disk<'a> {
    pub(super) places: Vec<Place>,
    pub(super) ground: Ground,
    pub(super) through: Through,
    pub(super) watch: &'a Watch,
}

impl<'a> Disk<'a> {
    /// Reserves a file of `bytes` in each place.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(places: Vec<Place>, bytes: u64, through: Through, watch: &'a Watch) -> Result<Disk<'a>, Failure> {
        let dirs: Vec<PathBuf> = places.iter().map(|place| place.path.clone()).collect();
        let ground = Ground::reserve(&dirs, bytes).map_err(failed)?;
        Ok(Disk { places, ground, through, watch })
    }

    /// The files.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// A report with nothing measured yet.
    pub fn report(&self) -> PathReport {
        let facts = self.ground.facts();
        PathReport {
            places: self.places.clone(),
            file_bytes: self.ground.bytes(),
            direct: facts.iter().all(|fact| fact.is_direct),
            alignment: facts.iter().map(|fact| fact.alignment).max().unwrap_or(UNIT_BYTES),
            engine: self.through.name().to_owned(),
            notices: facts.into_iter().filter_map(|fact| fact.notice).collect(),
            cells: Vec::new(),
            sweep: Vec::new(),
            variants: Vec::new(),
            sustained: None,
            sync_s: None,
            against: Vec::new(),
        }
    }

    /// Everything.
    ///
    /// # Errors
    /// The engine's; a stop.
    pub fn measure(&self, effort: &Effort) -> Result<PathReport, Failure> {
        let mut report = self.report();
        let mut load = self.load(options::MEMORY_MAX)?;
        self.told(&load, &mut report);
        self.watch.part("first write");
        let first = self.first_write(&mut load, effort.pattern)?;
        self.watch.part("patterns");
        report.cells = self.rounds(&mut load, &options::patterns(), effort.pattern)?;
        report.cells.push(first);
        self.watch.part("blocks and depths");
        let sweep: Vec<Pattern> = effort.sweep_cells().into_iter().map(|cell| Pattern { name: "", cell }).collect();
        report.sweep = self.rounds(&mut load, &sweep, effort.sweep)?;
        self.watch.part("durable writes");
        report.sync_s = Some(self.syncs(&mut load, effort.syncs)?);
        self.watch.part("a long write");
        let rate = report.cell(options::WRITE).map_or(1e9, |cell| cell.bytes_per_s.median);
        report.sustained = Some(self.sustained(&mut load, effort.sustained, rate)?);
        drop(load);
        self.watch.part("settings");
        report.variants = self.variants(effort.pattern)?;
        Ok(report)
    }

    /// One pattern alone, after every byte was written.
    ///
    /// # Errors
    /// The engine's; a stop.
    pub fn measure_cell(&self, cell: &Cell, time: Duration) -> Result<PathReport, Failure> {
        let mut report = self.report();
        let memory = u64::from(cell.block_bytes) * u64::from(cell.depth);
        let mut load = self.load_of(memory.max(u64::from(USUAL_BLOCK * USUAL_DEPTH)), cell.depth.max(USUAL_DEPTH))?;
        self.told(&load, &mut report);
        self.watch.part("writing the file once");
        self.fill(&mut load)?;
        self.watch.part("the pattern");
        report.cells = self.rounds(&mut load, &[Pattern { name: "this pattern", cell: *cell }], time)?;
        Ok(report)
    }

    /// What the backend says of itself.
    fn told(&self, load: &Load<'_>, report: &mut PathReport) {
        if self.through != Through::Tokio {
            report.engine = Through::Engine(load.backend()).name().to_owned();
        }
        let known = report.notices.clone();
        report.notices.extend(load.notices().iter().filter(|notice| !known.contains(notice)).cloned());
    }

    fn load(&self, memory_bytes: u64) -> Result<Load<'_>, Failure> {
        self.load_of(memory_bytes, 128)
    }

    fn load_of(&self, memory_bytes: u64, depth_max: u32) -> Result<Load<'_>, Failure> {
        let setup = Setup { backend: self.through.backend(), depth_max, memory_bytes, ..Setup::default() };
        self.ground.load(&setup).map_err(failed)
    }

    /// Runs a pattern through the engine for a time, or until as many bytes are submitted.
    fn engine(
        &self,
        load: &mut Load<'_>,
        cell: &Cell,
        time: Duration,
        bytes_max: u64,
        each: &mut dyn FnMut(Done),
    ) -> Result<Moved, Failure> {
        let is_over = |bytes, elapsed| elapsed >= time || bytes >= bytes_max || self.watch.is_stopped();
        let moved = load.run(cell, is_over, each).map_err(failed)?;
        self.watch.wrote(moved.write_bytes);
        self.watch.go_on()?;
        Ok(moved)
    }

    /// Runs a pattern through what was asked for.
    fn run(
        &self,
        load: &mut Load<'_>,
        cell: &Cell,
        time: Duration,
        each: &mut dyn FnMut(Done),
    ) -> Result<Moved, Failure> {
        if self.through != Through::Tokio {
            return self.engine(load, cell, time, u64::MAX, each);
        }
        self.tokio(cell, time, each)
    }

    pub(super) fn tokio(&self, cell: &Cell, time: Duration, each: &mut dyn FnMut(Done)) -> Result<Moved, Failure> {
        let moved = rival::run(&self.ground, cell, time, self.watch.stop(), each)
            .map_err(|error| Failure::new(format!("tokio-uring: {error}"), 4))?;
        self.watch.wrote(moved.write_bytes);
        self.watch.go_on()?;
        Ok(moved)
    }

    /// Writes all of every file once.
    fn fill(&self, load: &mut Load<'_>) -> Result<(), Failure> {
        let cell = usual(0);
        // The last block may reach beyond a file whose length is no multiple.
        let all = self.ground.bytes() * self.places.len() as u64;
        self.engine(load, &cell, Duration::MAX, all, &mut |_| ()).map(|_| ())
    }

    /// Writes into space that was never written; at the end the file is full.
    fn first_write(&self, load: &mut Load<'_>, time: Duration) -> Result<CellReport, Failure> {
        let cell = usual(0);
        let all = self.ground.bytes() * self.places.len() as u64;
        let mut tally = Tally::new();
        for _ in 0..REPEATS {
            self.ground.renew().map_err(failed)?;
            let moved = self.engine(load, &cell, time, all, &mut |done| tally.latencies.add(done.latency))?;
            tally.add(&moved);
        }
        self.fill(load)?;
        Ok(self.row(options::FIRST_WRITE, &cell, tally, time))
    }

    /// Each pattern several times, in rounds.
    fn rounds(&self, load: &mut Load<'_>, patterns: &[Pattern], time: Duration) -> Result<Vec<CellReport>, Failure> {
        // Checksums are the engine's own.
        let is_known = |pattern: &&Pattern| self.through != Through::Tokio || !pattern.cell.has_checksums;
        let patterns: Vec<&Pattern> = patterns.iter().filter(is_known).collect();
        let mut tallies: Vec<Tally> = patterns.iter().map(|_| Tally::new()).collect();
        for _ in 0..REPEATS {
            for (pattern, tally) in patterns.iter().zip(&mut tallies) {
                let moved = self.run(load, &pattern.cell, time, &mut |done| tally.latencies.add(done.latency))?;
                tally.add(&moved);
            }
        }
        let rows = patterns.iter().zip(tallies);
        Ok(rows.map(|(pattern, tally)| self.row(pattern.name, &pattern.cell, tally, time)).collect())
    }

    fn row(&self, name: &str, cell: &Cell, tally: Tally, time: Duration) -> CellReport {
        let is_pool = self.through == Through::Engine(Backend::Pool);
        let dir = &self.places[0].path;
        CellReport {
            name: name.to_owned(),
            rw: rw(cell),
            block_bytes: cell.block_bytes,
            depth: cell.depth,
            checksums: cell.has_checksums,
            cpu_s_per_gb: tally.cpu_seconds / (tally.bytes as f64 / 1e9).max(1e-9),
            latency: tally.latencies.summary(),
            bytes_per_s: Summary::of(tally.rates),
            fio: fio::command(cell, is_pool, dir, self.ground.bytes(), time),
        }
    }

    fn syncs(&self, load: &mut Load<'_>, count: usize) -> Result<Summary, Failure> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            times.push(load.write_and_sync(UNIT_BYTES).map_err(failed)?.as_secs_f64());
            self.watch.wrote(u64::from(UNIT_BYTES));
            self.watch.go_on()?;
        }
        Ok(Summary::of(times))
    }

    /// Writes the file once more, or for this time; `rate`: bytes a second, about.
    fn sustained(&self, load: &mut Load<'_>, time: Duration, rate: f64) -> Result<Sustained, Failure> {
        let all = self.ground.bytes() * self.places.len() as u64;
        let expected = time.as_secs_f64().min(all as f64 / rate.max(1.0));
        let mut line = Line::new(Duration::from_secs_f64((expected / LINE_POINTS).max(INTERVAL_MIN)));
        let warmth = || self.places.iter().filter_map(Place::temperature_c).reduce(f64::max);
        let before = warmth();
        let moved = self.engine(load, &usual(0), time, all, &mut |done| line.add(done.at, done.bytes))?;
        let points = line.points();
        let knee = knee(&points);
        let last_half = || {
            let rates: Vec<f64> = points[points.len() / 2..].iter().map(|point| point.bytes_per_s).collect();
            if rates.is_empty() { moved.rate() } else { Summary::of(rates).median }
        };
        Ok(Sustained {
            bytes: moved.write_bytes,
            seconds: moved.seconds,
            knee,
            lasting_bytes_per_s: knee.map_or_else(last_half, |knee| knee.after_bytes_per_s),
            temperatures_c: before.zip(warmth()),
            line: points,
        })
    }
}

/// The engine's usual transfers, of which as many of a hundred read.
pub fn usual(reads: u32) -> Cell {
    Cell { reads, is_random: false, block_bytes: USUAL_BLOCK, depth: USUAL_DEPTH, has_checksums: false }
}

/// A pattern's kind, as `--rw` says it.
pub fn rw(cell: &Cell) -> String {
    let kind = match cell.reads {
        100 => "read".to_owned(),
        0 => "write".to_owned(),
        reads => format!("mixed:{reads}"),
    };
    if cell.is_random { format!("rand{kind}") } else { kind }
}

/// What repeats of a pattern found.
struct Tally {
    rates: Vec<f64>,
    latencies: Latencies,
    bytes: u64,
    cpu_seconds: f64,
}

impl Tally {
    fn new() -> Tally {
        Tally { rates: Vec::new(), latencies: Latencies::new(), bytes: 0, cpu_seconds: 0.0 }
    }

    fn add(&mut self, moved: &Moved) {
        self.rates.push(moved.rate());
        self.bytes += moved.bytes();
        self.cpu_seconds += moved.cpu_seconds;
    }
}
