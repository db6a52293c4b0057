//! A plan with accesses in VRAM is refused by an engine that has no device, and the engine goes on.

use mt_engine::plan::{Shape, plan};
use mt_engine::*;
use std::sync::Arc;

#[test]
fn a_plan_with_device_accesses_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    let regions = [RegionSpec { name: "state".into(), page_bytes: 4096, pages: 8, kind: Kind::Checkpointed }];
    let device = DeviceId(0);
    let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes: 1 << 20, device_bytes: vec![(device, 1 << 20)], disk_bytes: u64::MAX };
    let profile = Profile { links: vec![LinkRates::assumed(device)], ..Profile::default() };
    // In the arena's window, in VRAM for good, or in RAM and on both sides: none of it is executed.
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
        engine.place(&plan.exit, &plan.spilled).expect("place");
        let refused = engine.sweep(&Arc::new(plan), None).map(|_| ());
        assert!(matches!(&refused, Err(Error::Misuse { what }) if what.contains("RAM")), "{refused:?}");
        engine.commit(b"it goes on").expect("commit");
        drop(engine);
        remove(&[dir.path().to_path_buf()]).expect("remove");
    }
}
