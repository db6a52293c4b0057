//! Stores of several volumes on real files: pages are dealt by weight, survive reopening in any order of directories,
//! and a volume that is missing, foreign, given twice or cut short is named.

use mt_engine::plan::{Plan, Shape, plan};
use mt_engine::*;
use std::path::PathBuf;
use std::sync::Arc;

const PAGES: u32 = 96;
const PAGE_BYTES: u32 = 8 << 10;
const HOST_BYTES: u64 = 256 << 10;

fn regions() -> Vec<RegionSpec> {
    vec![RegionSpec { name: "state".into(), page_bytes: PAGE_BYTES, pages: PAGES, kind: Kind::Checkpointed }]
}

fn config(dirs: &[PathBuf], weights: &[f64]) -> Config {
    let host_bytes = HOST_BYTES + record_bytes(&regions());
    Config { volume_weights: weights.to_vec(), stripe_bytes: 16 << 10, ..Config::new(dirs.to_vec(), host_bytes) }
}

fn run(first: u32) -> Run {
    Run { region: RegionId(0), first, count: 4 }
}

fn make_plan(mode: Mode) -> Arc<Plan> {
    let mut schedule = Schedule::default();
    for first in (0..PAGES).step_by(4) {
        let access = schedule.access(run(first), mode, 0);
        schedule.work(Resource::HostCompute, 1000, vec![access], 0);
    }
    let regions = regions();
    let shape = Shape { regions: &regions, sweeps_per_commit: 1, prefetch_intervals_max: None, has_disk: true };
    let budget = Budget { host_bytes: HOST_BYTES, device_bytes: vec![], disk_bytes: u64::MAX };
    let entry = Residency { fixed: true, ..Residency::default() };
    Arc::new(plan(&Arc::new(schedule), &shape, &budget, &Profile::default(), &entry).expect("the plan fits").0)
}

fn byte(page: u32, version: u8) -> u8 {
    (page as u8).wrapping_mul(29).wrapping_add(version)
}

/// Gives every page new bytes and commits.
fn fill(engine: &Engine, version: u8) {
    let sweep = engine.sweep(&make_plan(Mode::Write), None).expect("sweep");
    for first in (0..PAGES).step_by(4) {
        let mut lease = sweep.host_mut(run(first)).expect("lease");
        for (page, bytes) in (first..).zip(lease.chunks_mut(PAGE_BYTES as usize)) {
            bytes.fill(byte(page, version));
        }
    }
    sweep.finish().expect("finish");
    engine.commit(&[version]).expect("commit");
}

fn check(engine: &Engine, version: u8) -> Result<(), Error> {
    let sweep = engine.sweep(&make_plan(Mode::Read), None)?;
    for first in (0..PAGES).step_by(4) {
        let lease = sweep.host(run(first))?;
        for (page, bytes) in (first..).zip(lease.chunks(PAGE_BYTES as usize)) {
            assert!(bytes.iter().all(|b| *b == byte(page, version)), "page {page} of version {version}");
        }
    }
    sweep.finish()
}

struct Stores {
    _root: tempfile::TempDir,
    dirs: Vec<PathBuf>,
}

/// A committed store on volumes of these weights.
fn store(weights: &[f64]) -> Stores {
    let root = tempfile::tempdir().expect("a directory");
    let dirs: Vec<PathBuf> = (0..weights.len()).map(|n| root.path().join(format!("v{n}"))).collect();
    let engine = Engine::create(config(&dirs, weights), &regions()).expect("create");
    fill(&engine, 1);
    fill(&engine, 2);
    engine.close().expect("close");
    Stores { _root: root, dirs }
}

fn refusal(dirs: &[PathBuf]) -> String {
    match Engine::open(config(dirs, &[])) {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn pages_are_dealt_by_weight_and_come_back_whatever_the_order_of_directories() {
    for weights in [vec![1.0, 1.0], vec![2.0, 1.0], vec![3.0, 1.0, 2.0], vec![1.0; 4]] {
        let stores = store(&weights);
        let total: f64 = weights.iter().sum();
        let pages_bytes = 2 * u64::from(PAGES) * u64::from(PAGE_BYTES);
        for (dir, weight) in stores.dirs.iter().zip(&weights).skip(1) {
            let length = std::fs::metadata(dir.join("volume.mt")).expect("a volume").len() as f64 - 16384.0;
            let share = length / pages_bytes as f64;
            assert!((share - weight / total).abs() < 0.05, "{weights:?}: {} has {share}", dir.display());
        }
        let mut dirs = stores.dirs.clone();
        dirs.reverse();
        let engine = Engine::open(config(&dirs, &[])).expect("open");
        check(&engine, 2).expect("all pages");
        assert_eq!(engine.committed().map(|c| c.1), Some(vec![2]));
    }
}

#[test]
fn volumes_are_measured_where_no_weights_are_given() {
    let root = tempfile::tempdir().expect("a directory");
    let dirs = [root.path().join("a"), root.path().join("b")];
    let engine = Engine::create(config(&dirs, &[]), &regions()).expect("create");
    fill(&engine, 7);
    check(&engine, 7).expect("all pages");
    assert!(std::fs::metadata(dirs[1].join("volume.mt")).expect("a volume").len() > 16384, "both hold pages");
}

#[test]
fn a_missing_volume_is_named() {
    let stores = store(&[1.0, 1.0, 1.0]);
    let text = refusal(&stores.dirs[..2]);
    assert!(text.contains("volume 2 of 3") && text.contains("missing"), "{text}");
    let text = refusal(&stores.dirs[1..]);
    assert!(text.contains("lead") && text.contains("volume 1 of 3"), "{text}");
    let mut dirs = stores.dirs.clone();
    dirs[1] = dirs[1].join("elsewhere");
    let text = refusal(&dirs);
    assert!(text.contains("elsewhere"), "{text}");
    std::fs::create_dir(&dirs[1]).expect("a directory");
    let text = refusal(&dirs);
    assert!(text.contains("elsewhere") && text.contains("no volume is here"), "{text}");
}

#[test]
fn a_foreign_volume_is_refused() {
    let (ours, theirs) = (store(&[1.0, 1.0]), store(&[1.0, 1.0]));
    let text = refusal(&[ours.dirs[0].clone(), theirs.dirs[1].clone()]);
    assert!(text.contains("not this store's volume") && text.contains("volume 1 of 2"), "{text}");
    let text = refusal(&[ours.dirs[0].clone(), ours.dirs[1].clone(), theirs.dirs[1].clone()]);
    assert!(text.contains("not this store's volume"), "{text}");
    let text = refusal(&[ours.dirs[0].clone(), ours.dirs[0].join("../v0")]);
    assert!(text.contains("twice"), "{text}");
    let both = [ours.dirs[0].clone(), theirs.dirs[0].clone()];
    assert!(refusal(&both).contains("not this store's volume"));
}

#[test]
fn a_volume_that_is_cut_short_is_damaged() {
    let stores = store(&[1.0, 1.0]);
    let file = std::fs::OpenOptions::new().write(true).open(stores.dirs[1].join("volume.mt")).expect("a volume");
    file.set_len(64 << 10).expect("cut");
    let text = refusal(&stores.dirs);
    assert!(text.contains("v1") && text.contains("cut short"), "{text}");
}

#[test]
fn an_older_copy_of_a_volume_is_found_by_its_checksums() {
    let stores = store(&[1.0, 1.0]);
    let volume = stores.dirs[1].join("volume.mt");
    let old = std::fs::read(&volume).expect("a volume");
    let engine = Engine::open(config(&stores.dirs, &[])).expect("open");
    fill(&engine, 3);
    fill(&engine, 4);
    engine.close().expect("close");
    std::fs::write(&volume, old).expect("restored from a backup");
    let engine = Engine::open(config(&stores.dirs, &[])).expect("open");
    let error = check(&engine, 4).expect_err("the pages of another commit");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[test]
fn a_new_store_never_replaces_a_volume_that_may_be_in_use() {
    let stores = store(&[1.0, 1.0]);
    let new = stores.dirs[0].join("../new");
    let create = |dirs: &[PathBuf]| Engine::create(config(dirs, &vec![1.0; dirs.len()]), &regions()).err();
    let error = create(&[new.clone(), stores.dirs[1].clone()]).expect("refused");
    assert!(matches!(error, Error::ForeignVolume { .. }), "{error}");
    let error = create(&stores.dirs).expect("refused");
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    check(&Engine::open(config(&stores.dirs, &[])).expect("open"), 2).expect("untouched");
}

#[test]
fn a_creation_that_did_not_finish_is_replaced() {
    let root = tempfile::tempdir().expect("a directory");
    let dirs: Vec<PathBuf> = (0..3).map(|n| root.path().join(format!("v{n}"))).collect();
    drop(Engine::create(config(&dirs, &[1.0; 3]), &regions()).expect("create"));
    assert!(matches!(Engine::open(config(&dirs, &[])).err(), Some(Error::NoCommit { .. })));
    let engine = Engine::create(config(&dirs, &[1.0; 3]), &regions()).expect("create again");
    fill(&engine, 1);
    check(&engine, 1).expect("all pages");
}

#[test]
fn bad_weights_and_stripes_are_refused() {
    let root = tempfile::tempdir().expect("a directory");
    let dirs = [root.path().join("a"), root.path().join("b")];
    for weights in [vec![1.0], vec![1.0, 0.0], vec![1.0, f64::NAN], vec![1.0, 2.0, 3.0]] {
        let error = Engine::create(config(&dirs, &weights), &regions()).err().expect("refused");
        assert!(error.to_string().contains("volume_weights"), "{error}");
    }
    let odd = Config { stripe_bytes: 1000, ..config(&dirs, &[1.0, 1.0]) };
    assert!(Engine::create(odd, &regions()).err().expect("refused").to_string().contains("stripe_bytes"));
    let many: Vec<PathBuf> = (0..17).map(|n| root.path().join(n.to_string())).collect();
    assert!(
        Engine::create(config(&many, &[1.0; 17]), &regions()).err().expect("refused").to_string().contains("at most")
    );
}
