//! An engine with a device, from the outside: real bytes go up, are changed by work on a stream, and come back, from
//! and to every home, with commits and a second process; then the rates of the links through the engine.
//!
//! A program of its own (no test harness), so that it can be built here and run on a machine with a GPU and without
//! Rust. What can be done without a GPU is done with RAM in place of VRAM; the rest is skipped, loudly, where there is
//! none. Prints a short table; ends with "N passed, N failed".
#![allow(unsafe_code)]

use cudarc::driver::{CudaContext, CudaStream, sys};
use mt_engine::plan::{Budget, Plan, Residency, Shape, plan};
use mt_engine::*;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

const DEVICE: DeviceId = DeviceId(0);
const STATE: RegionId = RegionId(0);

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Where work runs.
enum Rig {
    Gpu(Arc<CudaStream>),
    Ram,
}

impl Rig {
    fn backend(&self) -> DeviceBackend {
        if let Rig::Gpu(_) = self { DeviceBackend::Cuda } else { DeviceBackend::Memory }
    }

    fn stream(&self) -> Stream {
        if let Rig::Gpu(stream) = self { Stream(stream.cu_stream() as u64) } else { Stream(0) }
    }

    /// Fills words of VRAM, some time later on the stream.
    fn fill(&self, address: u64, words: usize, value: u32) {
        let Rig::Gpu(stream) = self else {
            // SAFETY: the caller has a writing lease of these bytes, which are RAM of this process, 4,096-aligned; the
            // engine touches none of them until it is given back.
            let slice = unsafe { std::slice::from_raw_parts_mut(address as *mut u32, words) };
            return slice.fill(value);
        };
        stream.context().bind_to_thread().expect("a context that works");
        // SAFETY: the caller has a writing lease of these bytes, and names this stream when he gives it back.
        let result = unsafe { sys::cuMemsetD32Async(address, value, words, stream.cu_stream()) };
        assert_eq!(result, sys::CUresult::CUDA_SUCCESS, "cuMemsetD32Async");
    }
}

/// The value of a run's words after `version` changes.
fn value(run: Run, version: u32) -> u32 {
    (run.first + 1).wrapping_mul(0x9e37_79b9) ^ version.wrapping_mul(0x85eb_ca6b)
}

/// Words of a run: the first half as the last writer in RAM left them, the second as the last on the device did.
fn check(bytes: &[u8], run: Run, [in_ram, on_device]: [u32; 2]) -> Outcome {
    let half = bytes.len() / 2;
    for (part, version) in [(&bytes[..half], in_ram), (&bytes[half..], on_device)] {
        let expected = if version == 0 { 0 } else { value(run, version) };
        let wrong = part.chunks_exact(4).position(|word| word != expected.to_le_bytes());
        if let Some(at) = wrong {
            return Err(format!("{run}: word {at} is {:02x?} and not {expected:08x}", &part[4 * at..][..4]).into());
        }
    }
    Ok(())
}

struct Case<'a> {
    rig: &'a Rig,
    page_bytes: u32,
    pages: u32,
    /// Pages of a run.
    count: u32,
}

impl Case<'_> {
    fn regions(&self) -> Vec<RegionSpec> {
        let (page_bytes, pages) = (self.page_bytes, self.pages);
        vec![RegionSpec { name: "state".into(), page_bytes, pages, kind: Kind::Checkpointed }]
    }

    fn runs(&self) -> impl Iterator<Item = Run> + use<> {
        let count = self.count;
        (0..self.pages).step_by(count as usize).map(move |first| Run { region: STATE, first, count })
    }

    fn bytes(&self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.pages)
    }

    fn run_bytes(&self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.count)
    }

    fn plan(&self, schedule: Schedule, ram: u64, vram: u64, has_disk: bool, entry: &Residency) -> Arc<Plan> {
        let regions = self.regions();
        let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk };
        let budget = Budget { host_bytes: ram, device_bytes: vec![(DEVICE, vram)], disk_bytes: u64::MAX };
        let profile = Profile { links: vec![LinkRates::assumed(DEVICE)], ..Profile::default() };
        let (plan, _) = plan(&Arc::new(schedule), &shape, &budget, &profile, entry).expect("it fits");
        Arc::new(plan)
    }

    fn config(&self, dir: Option<&Path>, ram: u64, vram: u64) -> Config {
        let volumes = dir.map(|dir| dir.join("store")).into_iter().collect();
        let devices = vec![DeviceConfig { id: DEVICE, bytes: vram, backend: self.rig.backend() }];
        Config { devices, ..Config::new(volumes, ram + record_bytes(&self.regions())) }
    }
}

/// Every run is changed in RAM, then on the device, which takes it from there, and at last read in RAM.
fn both_sides(case: &Case<'_>) -> Schedule {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for run in case.runs() {
        let first = schedule.access(run, Mode::Update, 0);
        let update = schedule.work(Resource::HostCompute, 1000, vec![first], 0);
        let read = schedule.access_on(Tier::Device(DEVICE), run, Mode::Read, vec![first, update], 0);
        schedule.work(Resource::Compute(DEVICE), 1000, vec![read], 0);
    }
    schedule.commit(Vec::new());
    for run in case.runs() {
        let update = schedule.access_on(Tier::Device(DEVICE), run, Mode::Update, Vec::new(), 0);
        schedule.work(Resource::Compute(DEVICE), 1000, vec![update], 0);
    }
    for run in case.runs() {
        let read = schedule.access(run, Mode::Read, 0);
        schedule.work(Resource::HostCompute, 1000, vec![read], 0);
    }
    schedule.commit(Vec::new());
    schedule
}

/// Sweep `sweep`, from 1 on, of `both_sides`.
fn sweep_both(engine: &Engine, plan: &Arc<Plan>, case: &Case<'_>, sweep: u32, commits: bool) -> Outcome {
    let go = engine.sweep(plan, Some(plan))?;
    let stream = case.rig.stream();
    let half = case.run_bytes() as usize / 2;
    for run in case.runs() {
        let mut lease = go.host_mut(run)?;
        check(&lease, run, [sweep - 1, sweep - 1])?;
        for word in lease[..half].chunks_exact_mut(4) {
            word.copy_from_slice(&value(run, sweep).to_le_bytes());
        }
        drop(lease);
        go.device(run, DEVICE, stream)?.give_back()?;
    }
    if commits {
        go.commit(&[sweep as u8, 0])?;
    }
    for run in case.runs() {
        let lease = go.device_mut(run, DEVICE, stream)?;
        assert_eq!(lease.bytes(), case.run_bytes());
        case.rig.fill(lease.address() + half as u64, half / 4, value(run, sweep));
        lease.give_back()?;
    }
    for run in case.runs() {
        check(&go.host(run)?, run, [sweep, sweep])?;
    }
    if commits {
        go.commit(&[sweep as u8, 1])?;
    }
    go.finish()?;
    engine.wait_committed()?;
    Ok(())
}

/// All in RAM, no disk; then the bytes on the links are exactly the plan's.
fn in_ram(case: &Case<'_>) -> Outcome {
    let (ram, vram) = (case.bytes() + 8 * case.run_bytes(), 4 * case.run_bytes());
    let plan = case.plan(both_sides(case), ram, vram, false, &Residency::default());
    let engine = Engine::create(case.config(None, ram, vram), &case.regions())?;
    engine.place(&plan.exit, &plan.spilled)?;
    for sweep in 1..=3 {
        sweep_both(&engine, &plan, case, sweep, false)?;
    }
    let links = |way: fn((u64, u64)) -> u64| 3 * plan.intervals.iter().map(|i| way(i.link_bytes())).sum::<u64>();
    // The first of a cyclic schedule's intervals may be on their way already.
    let stats = engine.stats();
    if stats.download_bytes != links(|l| l.1) || stats.upload_bytes < links(|l| l.0) {
        return Err(format!("links: {stats:?}").into());
    }
    Ok(())
}

/// All on disk, with commits, in two processes.
fn on_disk(case: &Case<'_>) -> Outcome {
    let dir = tempfile::tempdir()?;
    let (ram, vram) = (10 * case.run_bytes(), 4 * case.run_bytes());
    let streamed = Residency { fixed: true, ..Residency::default() };
    let plan = case.plan(both_sides(case), ram, vram, true, &streamed);
    for process in 0..2 {
        let config = case.config(Some(dir.path()), ram, vram);
        let engine = if process == 0 { Engine::create(config, &case.regions())? } else { Engine::open(config)? };
        engine.place(&plan.exit, &plan.spilled)?;
        for sweep in 1..=2 {
            sweep_both(&engine, &plan, case, 2 * process + sweep, true)?;
        }
        engine.close()?;
    }
    Ok(())
}

/// All in VRAM for good: a commit brings it down, a second process up again.
fn in_vram(case: &Case<'_>) -> Outcome {
    let dir = tempfile::tempdir()?;
    let (ram, vram) = (10 * case.run_bytes(), case.bytes() + 4 * case.run_bytes());
    let half = case.run_bytes() as usize / 2;
    let updates = || {
        let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
        for run in case.runs() {
            let update = schedule.access_on(Tier::Device(DEVICE), run, Mode::Update, Vec::new(), 0);
            schedule.work(Resource::Compute(DEVICE), 1000, vec![update], 0);
        }
        schedule
    };
    let plan = case.plan(updates(), ram, vram, true, &Residency::default());
    assert_eq!(plan.devices[0].placed_bytes, case.bytes(), "everything is placed in VRAM");
    for process in 0..2u32 {
        let config = case.config(Some(dir.path()), ram, vram);
        let engine = if process == 0 { Engine::create(config, &case.regions())? } else { Engine::open(config)? };
        engine.place(&plan.exit, &plan.spilled)?;
        for sweep in 1..=2 {
            let go = engine.sweep(&plan, Some(&plan))?;
            for run in case.runs() {
                let lease = go.device_mut(run, DEVICE, case.rig.stream())?;
                let version = 2 * process + sweep;
                case.rig.fill(lease.address() + half as u64, half / 4, value(run, version));
                lease.give_back()?;
            }
            go.finish()?;
            engine.commit(b"in VRAM")?;
        }
        // In RAM, over the same placement.
        let entry = Residency { prefetched: Vec::new(), ..plan.exit.clone() };
        let mut visits = Schedule::default();
        for run in case.runs() {
            visits.access(run, Mode::Read, 0);
        }
        let visit = case.plan(visits, ram, vram, true, &entry);
        let go = engine.sweep(&visit, None)?;
        for run in case.runs() {
            check(&go.host(run)?, run, [0, 2 * process + 2])?;
        }
        go.finish()?;
        engine.close()?;
    }
    Ok(())
}

/// What cannot be had is told, with what was looked for, found and needed.
fn refusals(case: &Case<'_>) -> Outcome {
    let open = |id, vram| {
        let devices = vec![DeviceConfig { id, bytes: vram, backend: DeviceBackend::Cuda }];
        let config = Config { devices, ..case.config(None, case.bytes(), vram) };
        Engine::create(config, &case.regions()).map(|_| ())
    };
    let absent = open(DeviceId(77), 4096);
    let too_large = open(DEVICE, 1 << 50);
    match (&absent, &too_large) {
        (Err(Error::NoDevice { .. }), Err(Error::Device { .. })) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// GB/s of a sweep that only moves, by the mode of its accesses.
fn rate(rig: &Rig, run_bytes: u32, mode: Mode) -> Result<f64, Box<dyn std::error::Error>> {
    let runs: u32 = (2u64 << 30).div_euclid(u64::from(run_bytes)) as u32;
    let case = Case { rig, page_bytes: run_bytes, pages: runs, count: 1 };
    let (ram, vram) = (case.bytes(), 512 << 20);
    // In RAM for good, not in VRAM.
    let mut placing = Schedule::default();
    for run in case.runs() {
        placing.access(run, Mode::Write, 0);
    }
    let entry = case.plan(placing, ram, 0, false, &Residency::default()).exit.clone();
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for run in case.runs() {
        let access = schedule.access_on(Tier::Device(DEVICE), run, mode, Vec::new(), 0);
        schedule.work(Resource::Compute(DEVICE), 0, vec![access], 0);
    }
    let plan = case.plan(schedule, ram, vram, false, &entry);
    let engine = Engine::create(case.config(None, ram, vram), &case.regions())?;
    engine.place(&plan.exit, &plan.spilled)?;
    let mut rates = Vec::new();
    for _ in 0..6 {
        let begin = Instant::now();
        let go = engine.sweep(&plan, None)?;
        for run in case.runs() {
            let lease = match mode.writes() {
                true => go.device_mut(run, DEVICE, rig.stream())?,
                false => go.device(run, DEVICE, rig.stream())?,
            };
            lease.give_back()?;
        }
        go.finish()?;
        rates.push(case.bytes() as f64 / begin.elapsed().as_secs_f64() / 1e9);
    }
    // The first sweep touches the arena.
    let rates = &mut rates[1..];
    rates.sort_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}

fn checks(rig: &Rig, what: &str) -> (u32, u32) {
    let (mut passed, mut failed) = (0, 0);
    type Part = (&'static str, fn(&Case<'_>) -> Outcome);
    let refusals: &[Part] = if let Rig::Gpu(_) = rig { &[("refusals", refusals)] } else { &[] };
    let homes: [Part; 3] = [("home in RAM", in_ram), ("home on disk", on_disk), ("home in VRAM", in_vram)];
    for &(name, part) in refusals.iter().chain(&homes) {
        for (page_bytes, pages, count) in [(4096, 96, 2), (256 << 10, 64, 4)] {
            let begin = Instant::now();
            let outcome = part(&Case { rig, page_bytes, pages, count });
            let ms = begin.elapsed().as_millis();
            match outcome {
                Ok(()) => passed += 1,
                Err(error) => {
                    failed += 1;
                    println!("FAILED {what}, {name}, pages of {page_bytes}: {error}");
                    continue;
                }
            }
            println!("{what:<4} {name:<13} pages of {page_bytes:>6}  ok  {ms:>5} ms");
        }
    }
    (passed, failed)
}

fn main() -> ExitCode {
    let (mut passed, mut failed) = checks(&Rig::Ram, "RAM");
    let probe = Case { rig: &Rig::Ram, page_bytes: 4096, pages: 4, count: 1 };
    let devices = vec![DeviceConfig { id: DEVICE, bytes: 1 << 20, backend: DeviceBackend::Cuda }];
    let config = Config { devices, ..probe.config(None, 1 << 20, 1 << 20) };
    match Engine::create(config, &probe.regions()) {
        Ok(_) => {
            let context = CudaContext::new(0).expect("the engine has opened it");
            let rig = Rig::Gpu(context.new_stream().expect("a stream"));
            let (more, less) = checks(&rig, "GPU");
            (passed, failed) = (passed + more, failed + less);
            println!("GB/s through the engine   up   down   both, each way");
            for run_bytes in [4 << 20, 16 << 20] {
                let [up, down, both] = [Mode::Read, Mode::Write, Mode::Update].map(|mode| {
                    rate(&rig, run_bytes, mode).unwrap_or_else(|error| {
                        println!("FAILED rate: {error}");
                        f64::NAN
                    })
                });
                println!("runs of {:>2} MiB            {up:>5.1}  {down:>5.1}  {both:>5.1}", run_bytes >> 20);
            }
        }
        Err(error @ Error::NoDevice { .. }) => eprintln!("skipped: engine with a GPU: {error}"),
        Err(error) => {
            println!("FAILED to open the GPU: {error}");
            failed += 1;
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
