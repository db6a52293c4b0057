//! Verification, description and the ledger, through the public API on real files.

use mt_engine::plan::{Shape, plan};
use mt_engine::*;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const PAGES: u32 = 600;
const STATE: RegionId = RegionId(0);
const CONSTANTS: RegionId = RegionId(1);

fn regions() -> Vec<RegionSpec> {
    vec![
        RegionSpec { name: "state".into(), page_bytes: 4096, pages: PAGES, kind: Kind::Checkpointed },
        RegionSpec { name: "constants".into(), page_bytes: 8192, pages: 20, kind: Kind::Frozen },
        RegionSpec { name: "scratch".into(), page_bytes: 4096, pages: 50, kind: Kind::Scratch },
    ]
}

fn config(dir: &Path) -> Config {
    Config::new(vec![dir.to_path_buf()], (2 << 20) + record_bytes(&regions()))
}

/// What fills a page, again and again.
fn mark(region: RegionId, page: u32) -> [u8; 4] {
    (0x7000_0000 | region.0 << 16 | page).to_le_bytes()
}

/// Writes all pages of a region but the first ten of the state, which stay as they were made.
fn write(engine: &Engine, region: RegionId) {
    let spec = &engine.regions()[region.0 as usize];
    let runs: Vec<Run> = (0..spec.pages).step_by(10).map(|first| Run { region, first, count: 10 }).collect();
    let runs = &runs[usize::from(region == STATE)..];
    let mut schedule = Schedule::default();
    for run in runs {
        let access = schedule.access(*run, Mode::Write, 0);
        schedule.work(Resource::HostCompute, 0, vec![access], 0);
    }
    let shape = Shape { regions: engine.regions(), sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes: 1 << 20, device_bytes: vec![], disk_bytes: u64::MAX };
    let entry = Residency { fixed: true, ..Residency::default() };
    let (plan, _) = plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &entry).expect("it fits");
    let sweep = engine.sweep(&Arc::new(plan), None).expect("sweep");
    for run in runs {
        let mut lease = sweep.host_mut(*run).expect("lease");
        for (page, bytes) in (run.first..).zip(lease.chunks_mut(spec.page_bytes as usize)) {
            bytes.chunks_mut(4).for_each(|word| word.copy_from_slice(&mark(region, page)));
        }
    }
    sweep.finish().expect("finish");
}

/// A store with a commit.
fn made(dir: &Path) {
    let engine = Engine::create(config(dir), &regions()).expect("create");
    write(&engine, CONSTANTS);
    write(&engine, STATE);
    engine.commit(b"note").expect("commit");
    engine.close().expect("close");
}

fn verified(dir: &Path) -> Verified {
    let engine = Engine::open(config(dir)).expect("open");
    let mut seen = Vec::new();
    let found = engine.verify(&mut |done, all| seen.push((done, all))).expect("verify");
    let all = u64::from(PAGES + 20);
    assert!(seen.is_sorted() && seen.last() == Some(&(all, all)), "progress reaches its end: {seen:?}");
    // Once more on the same engine, which is as it was.
    let again = engine.verify(&mut |_, _| {}).expect("verify");
    assert_eq!((again.pages, again.read_bytes, again.bad.len()), (found.pages, found.read_bytes, found.bad.len()));
    found
}

#[test]
fn a_sound_store_verifies_and_only_what_was_written_is_read() {
    let dir = tempfile::tempdir().expect("temp dir");
    made(dir.path());
    let found = verified(dir.path());
    assert_eq!((found.pages, found.bad.len()), (u64::from(PAGES) + 20, 0));
    assert_eq!(found.read_bytes, 590 * 4096 + 20 * 8192);
}

#[test]
fn every_bad_page_is_named_and_no_other() {
    let dir = tempfile::tempdir().expect("temp dir");
    made(dir.path());
    let path = dir.path().join("volume.mt");
    let content = std::fs::read(&path).expect("the volume");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the volume");
    let bad = [(STATE, 10), (STATE, 11), (STATE, 299), (STATE, 599), (CONSTANTS, 19)];
    for (region, page) in bad {
        let at = content.chunks(4096).position(|block| block.starts_with(&mark(region, page))).expect("it was written");
        file.write_all_at(&[0xff], at as u64 * 4096 + 1000).expect("other bits");
    }
    let found = verified(dir.path());
    let named: Vec<(&str, u32)> = found.bad.iter().map(|bad| (bad.region.as_str(), bad.page)).collect();
    assert_eq!(named, [("state", 10), ("state", 11), ("state", 299), ("state", 599), ("constants", 19)]);
    assert_eq!(found.pages, u64::from(PAGES) + 20 - 5);
    for bad in &found.bad {
        assert!(matches!(&bad.error, Error::Corrupt { page, .. } if *page == bad.page), "{:?}", bad.error);
    }
}

#[test]
fn a_volume_that_was_cut_off_is_named_with_both_lengths() {
    let dir = tempfile::tempdir().expect("temp dir");
    made(dir.path());
    let path = dir.path().join("volume.mt");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the volume");
    let length = file.metadata().expect("metadata").len();
    file.set_len(length - 3 * 8192).expect("cut off");
    let error = Engine::open(config(dir.path())).err().expect("refused").to_string();
    assert!(error.contains("volume.mt") && error.contains(&(length - 3 * 8192).to_string()), "{error}");
}

/// Over the store's life: what each process had moved by its last commit.
#[test]
fn the_ledger_adds_up_over_many_processes() {
    let dir = tempfile::tempdir().expect("temp dir");
    made(dir.path());
    let moved = |identity: &Identity| (identity.ledger[0].read_bytes, identity.ledger[0].write_bytes);
    let described = || moved(&describe(&[dir.path().to_path_buf()]).expect("describe").identity);
    let mut ledger = described();
    // The first process: both regions, the table and the note, and the two copies of a superblock.
    let records = record_bytes(&regions()) - (64 << 10);
    assert_eq!(ledger, (0, 590 * 4096 + 20 * 8192 + records + 4096 + 4096));
    for _ in 0..3 {
        let engine = Engine::open(config(dir.path())).expect("open");
        assert_eq!(moved(engine.identity()), ledger);
        engine.verify(&mut |_, _| {}).expect("verify");
        for _ in 0..2 {
            write(&engine, STATE);
            engine.commit(b"again").expect("commit");
        }
        let stats = engine.stats();
        engine.close().expect("close");
        ledger = (ledger.0 + stats.disk_read_bytes, ledger.1 + stats.disk_write_bytes);
        assert_eq!(described(), ledger);
        assert!(stats.disk_read_bytes > 1 << 20 && stats.disk_write_bytes > 4 << 20);
    }
}

#[test]
fn a_description_names_the_volumes_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("temp dir");
    made(dir.path());
    let before = std::fs::read(dir.path().join("volume.mt")).expect("the volume");
    let description = describe(&[dir.path().to_path_buf()]).expect("describe");
    let [volume] = &description.volumes[..] else { panic!("one volume: {:?}", description.volumes) };
    assert_eq!(volume.path, dir.path());
    assert!(volume.reserved_bytes >= reserved_bytes(&regions()));
    assert_eq!((description.commit, description.note.as_slice()), (CommitId(0), b"note".as_slice()));
    assert_eq!(description.regions, regions());
    assert!(before == std::fs::read(dir.path().join("volume.mt")).expect("the volume"));
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 1, "the lock is gone");
}

#[test]
fn a_creation_that_is_refused_leaves_nothing() {
    let dir = tempfile::tempdir().expect("temp dir");
    let store = dir.path().join("a/b");
    let mut too_little = config(&store);
    too_little.host_bytes = 4096;
    assert!(matches!(Engine::create(too_little, &regions()), Err(Error::Config { .. })));
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0);
    let mut too_large = regions();
    too_large[0].pages = u32::MAX / 32;
    too_large[0].page_bytes = 64 << 20;
    match Engine::create(config(&store), &too_large) {
        Err(Error::NoSpace { path, need, free }) => assert!(path == store && need > free),
        other => panic!("expected NoSpace, found {:?}", other.err()),
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0);
    // Where something was before, it stays.
    std::fs::create_dir_all(&store).expect("create");
    assert!(Engine::create(config(&store), &too_large).is_err());
    assert!(store.exists() && std::fs::read_dir(&store).expect("list").next().is_none());
}
