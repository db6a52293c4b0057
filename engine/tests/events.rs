//! A recording holds what the counters counted, byte by byte, with the schedule's labels.

use mt_engine::events::{Doing, Event};
use mt_engine::plan::{Shape, plan};
use mt_engine::*;
use std::sync::Arc;

const PAGES: u32 = 96;
const COUNT: u32 = 4;
const PAGE_BYTES: u32 = 16 << 10;
const STATE: RegionId = RegionId(0);

fn run(first: u32) -> Run {
    Run { region: STATE, first, count: COUNT }
}

fn firsts() -> impl Iterator<Item = u32> {
    (0..PAGES).step_by(COUNT as usize)
}

/// Every run is updated under its first page as label.
fn planned(regions: &[RegionSpec], host_bytes: u64) -> Arc<Plan> {
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for first in firsts() {
        let access = schedule.access(run(first), Mode::Update, u64::from(first));
        schedule.work(Resource::HostCompute, 1000, vec![access], u64::from(first));
    }
    let shape = Shape { regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes, device_bytes: vec![], disk_bytes: u64::MAX };
    let entry = Residency { fixed: true, ..Residency::default() };
    Arc::new(plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &entry).expect("the plan fits").0)
}

fn sweep(engine: &Engine, plan: &Arc<Plan>, recorder: &Recorder) {
    let sweep = engine.sweep(plan, None).expect("sweep");
    for first in firsts() {
        let mut lease = sweep.host_mut(run(first)).expect("lease");
        let begin = recorder.now_ns();
        lease.fill(first as u8);
        recorder.worked(u64::from(first), begin);
    }
    sweep.finish().expect("finish");
}

fn sum(events: &[Event], doing: Doing) -> u64 {
    events.iter().filter(|event| event.doing == doing).map(|event| event.bytes).sum()
}

#[test]
fn bytes_of_a_recording_are_those_of_the_counters() {
    for backend in [Backend::Auto, Backend::Pool] {
        let dir = tempfile::tempdir().expect("temp dir");
        let volumes = vec![dir.path().join("a"), dir.path().join("b")];
        let regions =
            [RegionSpec { name: "state".into(), page_bytes: PAGE_BYTES, pages: PAGES, kind: Kind::Checkpointed }];
        let host_bytes = u64::from(3 * COUNT * PAGE_BYTES);
        let recorder = Arc::new(Recorder::new(4096));
        let config = Config {
            backend,
            stripe_bytes: PAGE_BYTES,
            volume_weights: vec![1.0, 1.0],
            recorder: Some(recorder.clone()),
            ..Config::new(volumes, host_bytes + record_bytes(&regions))
        };
        let engine = Engine::create(config, &regions).expect("create");
        let plan = planned(&regions, host_bytes);
        engine.place(&plan.exit, &plan.spilled).expect("place");
        sweep(&engine, &plan, &recorder);
        engine.commit(b"before").expect("commit");
        assert!(recorder.take().events.is_empty(), "it is off until it is started");

        recorder.start();
        let before = engine.stats();
        sweep(&engine, &plan, &recorder);
        engine.commit(b"after").expect("commit");
        let after = engine.stats();
        recorder.stop();
        sweep(&engine, &plan, &recorder);
        let Recording { events, left_out } = recorder.take();
        assert_eq!(left_out, 0);

        let read = after.disk_read_bytes - before.disk_read_bytes;
        let written = after.disk_write_bytes - before.disk_write_bytes;
        assert_eq!(read, u64::from(PAGES * PAGE_BYTES));
        assert_eq!(sum(&events, Doing::Reading), read);
        assert_eq!(sum(&events, Doing::Writing), u64::from(PAGES * PAGE_BYTES));
        assert_eq!(sum(&events, Doing::Writing) + sum(&events, Doing::Recording), written);
        let count = |doing| events.iter().filter(|event| event.doing == doing).count();
        assert_eq!(count(Doing::Working), firsts().count());
        assert_eq!(count(Doing::Waiting) as u64, after.waits - before.waits);
        // Both volumes for the pages, the lead once more for the superblock.
        assert_eq!(events.iter().filter(|e| e.doing == Doing::Syncing).map(|e| e.operations).sum::<u32>(), 3);
        for event in &events {
            assert!(event.begin_ns <= event.end_ns, "{event:?}");
            if let (Some(run), Doing::Reading | Doing::Writing | Doing::Waiting) = (event.run, event.doing) {
                let label = u64::from(run.first / COUNT * COUNT);
                assert_eq!(
                    (event.tag, run.end() <= run.first / COUNT * COUNT + COUNT),
                    (Some(label), true),
                    "{event:?}"
                );
            }
        }
        assert!([0, 1].iter().all(|volume| events.iter().any(|e| e.volume == *volume && e.doing == Doing::Reading)));
        let link = after.link;
        assert!(link.read_ns > 0 && link.write_ns > 0, "{link:?}");
    }
}

/// Runs are updated in RAM and then read and changed in VRAM, streamed through both.
#[test]
fn copies_of_a_recording_are_those_of_the_counters_and_follow_each_other() {
    let device = DeviceId(3);
    let regions = [RegionSpec { name: "state".into(), page_bytes: PAGE_BYTES, pages: PAGES, kind: Kind::Checkpointed }];
    let mut schedule = Schedule { cyclic: true, ..Schedule::default() };
    for first in firsts() {
        let label = u64::from(first);
        let access = schedule.access(run(first), Mode::Update, label);
        schedule.work(Resource::HostCompute, 1000, vec![access], label);
        let access = schedule.access_on(Tier::Device(device), run(first), Mode::Update, vec![], label);
        schedule.work(Resource::Compute(device), 1000, vec![access], label);
    }
    let bytes = u64::from(8 * COUNT * PAGE_BYTES);
    let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes: bytes, device_bytes: vec![(device, bytes)], disk_bytes: u64::MAX };
    let entry = Residency { fixed: true, ..Residency::default() };
    let profile = Profile { links: vec![LinkRates::assumed(device)], ..Profile::default() };
    let plan = Arc::new(plan(&Arc::new(schedule), &shape, &budget, &profile, &entry).expect("the plan fits").0);

    let dir = tempfile::tempdir().expect("temp dir");
    let recorder = Arc::new(Recorder::new(4096));
    let config = Config {
        devices: vec![DeviceConfig { id: device, bytes, backend: DeviceBackend::Memory }],
        recorder: Some(recorder.clone()),
        ..Config::new(vec![dir.path().join("store")], bytes + record_bytes(&regions))
    };
    let engine = Engine::create(config, &regions).expect("create");
    engine.place(&plan.exit, &plan.spilled).expect("place");
    recorder.start();
    let sweep = engine.sweep(&plan, None).expect("sweep");
    for first in firsts() {
        sweep.host_mut(run(first)).expect("lease").fill(1);
        sweep.device_mut(run(first), device, device::Stream(1)).expect("lease").give_back().expect("fence");
        recorder.computed(device, u64::from(first), (recorder.now_ns(), recorder.now_ns()));
    }
    sweep.finish().expect("finish");
    engine.commit(b"all of it").expect("commit");
    recorder.stop();
    let (events, stats) = (recorder.take().events, engine.stats());

    let all = u64::from(PAGES * PAGE_BYTES);
    assert_eq!((stats.upload_bytes, stats.download_bytes), (all, all));
    for doing in [Doing::Uploading(device), Doing::Downloading(device)] {
        let copies: Vec<&Event> = events.iter().filter(|event| event.doing == doing).collect();
        assert_eq!(copies.iter().map(|event| event.bytes).sum::<u64>(), all, "{doing:?}");
        assert!(copies.windows(2).all(|pair| pair[0].end_ns <= pair[1].begin_ns), "{copies:?}");
        for event in &copies {
            let pages = event.run.expect("a copy's pages");
            assert_eq!((event.tag, event.operations, pages.count), (Some(u64::from(pages.first)), 1, COUNT));
        }
        assert_eq!(copies.len(), firsts().count());
    }
    assert_eq!(events.iter().filter(|event| event.doing == Doing::Computing(device)).count(), firsts().count());
    assert!(stats.link.upload_ns > 0 && stats.link.download_ns > 0, "{:?}", stats.link);
}
