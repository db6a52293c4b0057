//! Plans as text. `UPDATE=1 cargo test -p mt-engine golden` writes the files anew.

use super::samples::{Training, training, training_regions};
use super::{budget, planned, shape};
use crate::plan::{Shape, explain};
use std::path::Path;

fn check(name: &str, pages: u64, prefetch_intervals_max: Option<u32>, sweeps_per_commit: u32) {
    let size = Training { units: 6, chunks: 3, micro_batches: 4, pages_per_chunk: 2 };
    let (schedule, regions) = (training(size), training_regions(size));
    let shape = Shape { prefetch_intervals_max, sweeps_per_commit, ..shape(&regions) };
    let (plan, prediction) = planned(&schedule, &shape, &budget(pages)).unwrap();
    let found = explain(&plan, &prediction, &shape);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, expected, "{} differs; UPDATE=1 rewrites it", path.display());
}

#[test]
fn golden_everything_fits() {
    check("everything_fits", 1_000, None, 1);
}

#[test]
fn golden_half_fits() {
    check("half_fits", 200, None, 1);
}

#[test]
fn golden_half_fits_and_never_commits() {
    check("half_fits_and_never_commits", 200, None, 0);
}

#[test]
fn golden_tight() {
    check("tight", 40, None, 1);
}

#[test]
fn golden_without_prefetching() {
    check("without_prefetching", 200, Some(0), 1);
}
