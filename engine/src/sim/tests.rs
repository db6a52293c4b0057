use super::*;
use crate::canary::{ALL, Canary, Nest};
use crate::io::memory::fault::Fault;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds that every test run takes; with the fresh ones about a minute on two processors.
const FIXED: u64 = 2_000;

/// Seeds that only this test run takes.
const FRESH: u64 = 500;

/// Seeds within which every planted bug must be found.
const CANARY_SEEDS: u64 = 400;

/// Calls `work` for every item, on all processors, and returns the results in the order of the items.
pub(super) fn over<T: Copy + Sync, R: Send>(items: &[T], work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = work(*item);
                    results.lock().expect("no holder panics").push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no holder panics");
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs a seed that must not fail.
fn clean(seed: u64) -> Report {
    run(seed).unwrap_or_else(|failure| panic!("\n{failure}\n{}", failure.rows.join("\n")))
}

fn sum(reports: Vec<Report>) -> Report {
    reports.iter().fold(Report::default(), |mut total, report| {
        total.add(report);
        total
    })
}

#[test]
fn fixed_seeds_are_clean_and_the_same_when_run_again() {
    let seeds: Vec<u64> = (0..FIXED).collect();
    let total = sum(over(&seeds, |seed| {
        let report = clean(seed);
        assert_eq!(report, clean(seed), "seed {seed:#x}: another trace when run again");
        report
    }));
    eprintln!("{FIXED} seeds: {} events, {} images inspected", total.events, total.images);
    for fault in Fault::ALL {
        eprintln!("{:>9} {}", total.faults.of(fault), fault.name());
        assert!(total.faults.of(fault) > 0, "no seed met: {}", fault.name());
    }
    for mark in Mark::ALL {
        eprintln!("{:>9} {mark:?}", total.met(mark));
        assert!(total.met(mark) > 0, "no seed met: {mark:?}");
    }
}

#[test]
fn fresh_seeds_are_clean() {
    let first = RandomState::new().hash_one(0);
    eprintln!("{FRESH} seeds from {first:#018x} on");
    let seeds: Vec<u64> = (0..FRESH).map(|n| first.wrapping_add(n)).collect();
    let total = sum(over(&seeds, clean));
    eprintln!("{} events, {} images inspected", total.events, total.images);
}

/// The first seed that finds a planted bug.
fn finder(canary: Canary) -> Option<Box<Failure>> {
    let _nest = Nest::of(canary);
    (0..CANARY_SEEDS).find_map(|seed| run(seed).err())
}

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for (canary, found) in ALL.into_iter().zip(over(&ALL, finder)) {
        match found {
            Some(failure) => {
                eprintln!("{:<24} seed {:>3}  {}", format!("{canary:?}"), failure.seed, failure.check.name());
            }
            None => missed.push(canary),
        }
    }
    assert!(missed.is_empty(), "not found within {CANARY_SEEDS} seeds: {missed:?}");
}

#[test]
fn without_a_planted_bug_the_same_seeds_are_clean() {
    let seeds: Vec<u64> = (0..CANARY_SEEDS).collect();
    over(&seeds, clean);
}

#[test]
fn a_failure_replays_itself() {
    let _nest = Nest::of(Canary::OneSlot);
    let failure = (0..CANARY_SEEDS).find_map(|seed| run(seed).err()).expect("a planted bug is found");
    let (rows, again) = replay(failure.seed, usize::MAX);
    let again = again.expect_err("the same seed fails again");
    assert_eq!((again.check, &again.what), (failure.check, &failure.what));
    assert!(failure.to_string().starts_with(&format!("mt-bench sim --seed {:#018x}", failure.seed)));
    assert!(rows.len() >= failure.rows.len() && rows.ends_with(&failure.rows));
}
