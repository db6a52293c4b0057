//! Plans with accesses in VRAM at an engine that has no device: they are refused, and the engine goes on. And devices
//! that cannot be had.

use mt_engine::plan::{Shape, plan};
use mt_engine::*;
use std::sync::Arc;

const REGION: &str = "state";

fn regions() -> Vec<RegionSpec> {
    vec![RegionSpec { name: REGION.into(), page_bytes: 4096, pages: 8, kind: Kind::Checkpointed }]
}

#[test]
fn a_plan_with_device_accesses_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    let regions = regions();
    let device = DeviceId(0);
    let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes: 1 << 20, device_bytes: vec![(device, 1 << 20)], disk_bytes: u64::MAX };
    let profile = Profile { links: vec![LinkRates::assumed(device)], ..Profile::default() };
    // In the arena's window, in VRAM for good, or in RAM and on both sides.
    let run = Run { region: RegionId(0), first: 0, count: 8 };
    let streamed = Residency { fixed: true, ..Residency::default() };
    for (entry, on_both) in [(&streamed, false), (&Residency::default(), false), (&Residency::default(), true)] {
        let config = Config::new(vec![dir.path().to_path_buf()], (1 << 20) + record_bytes(&regions));
        let engine = Engine::create(config, &regions).expect("create");
        let mut schedule = Schedule::default();
        schedule.access_on(Tier::Device(device), run, Mode::Update, Vec::new(), 0);
        if on_both {
            schedule.access(run, Mode::Update, 0);
        }
        let (plan, _) = plan(&Arc::new(schedule), &shape, &budget, &profile, entry).expect("it fits");
        let placed = engine.place(&plan.exit, &plan.spilled);
        let in_vram = plan.exit.devices.iter().any(|device| !device.placed.is_empty());
        assert_eq!(placed.is_err(), in_vram, "{placed:?}");
        let refused = engine.sweep(&Arc::new(plan), None).map(|_| ());
        assert!(matches!(&refused, Err(Error::Misuse { what }) if what.contains("device 0")), "{refused:?}");
        engine.commit(b"it goes on").expect("commit");
        drop(engine);
        remove(&[dir.path().to_path_buf()]).expect("remove");
    }
}

/// Also on a machine with GPUs: none has so many.
#[test]
fn a_gpu_that_is_not_there_is_told_with_what_was_looked_for_found_and_needed() {
    let devices = vec![DeviceConfig { id: DeviceId(200), bytes: 4096, backend: DeviceBackend::Cuda }];
    let config = Config { devices, ..Config::new(Vec::new(), 1 << 20) };
    let Err(error) = Engine::create(config, &regions()) else { panic!("there is no such GPU") };
    assert!(matches!(error, Error::NoDevice { .. }), "{error:?}");
    let text = error.to_string();
    for word in ["device 200", "looked for", "found", "needed"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn devices_are_named_once_and_in_whole_blocks() {
    let one = DeviceConfig { id: DeviceId(0), bytes: 4096, backend: DeviceBackend::Memory };
    for devices in [vec![one, one], vec![DeviceConfig { bytes: 0, ..one }], vec![DeviceConfig { bytes: 100, ..one }]] {
        let config = Config { devices, ..Config::new(Vec::new(), 1 << 20) };
        let refused = Engine::create(config, &regions()).map(|_| ());
        assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
    }
}
