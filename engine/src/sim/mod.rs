//! Deterministic simulation: the production state machine over a simulated disk, driven by a seed.
//!
//! What it is: small random stores on one volume or several, whose users sweep, ask for tickets beside that, commit,
//! pass over, give up and die, over a disk that reorders, tears, shortens, fails, forgets and lies. After every crash
//! and at the end what is there is compared with an oracle that knows each page's version. One 64-bit seed decides
//! everything, through streams with names, so that a change to one kind of choice shifts no other; the same seed and
//! the same code give the same trace.
//!
//! What it is not: a test of threads, of system calls or of time. The reactor, the backends and the files have tests of
//! their own.
//!
//! Terms: a *run* is all that one seed decides; a *process* is a stay between open and end; a *turn* is one step of the
//! core; an *image* is what a crash may leave on the volumes; a fault is *masked*, *told* or *damage* by what its users
//! may notice of it.
//!
//! The contract that is checked:
//! 1. Opening gives exactly the last acknowledged commit, or the one that was being made.
//! 2. A read gives the bytes that were written, or an error that names the place of damage which is there. Records
//!    survive damage to one of their two copies; a page table has one, and its damage is told at open.
//! 3. Scratch that was not written since open is an error; so is writing to a frozen region after the first commit.
//! 4. No bytes of the arena, and no pages, have two uses of which one writes.
//! 5. Everything that was asked for ends, also while faults go on.
//! 6. After the first failed write or sync nothing succeeds.
//! 7. The same seed gives the same trace.

mod client;
mod inspect;
mod life;
mod oracle;
mod plain;
mod report;
mod swarm;
mod trace;
mod users;
mod work;
mod world;

pub use report::{Check, Failure, Mark, Report};

use report::Broken;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// Rows of the trace that a failure carries.
const ROWS_MAX: usize = 200;

/// Runs a seed.
///
/// # Errors
/// The first check that fails.
pub fn run(seed: u64) -> Result<Report, Box<Failure>> {
    replay(seed, ROWS_MAX).1
}

/// Runs a seed and returns the last `rows_max` rows of its trace with the result.
#[allow(clippy::result_large_err, reason = "the error is boxed; the tuple is what is large")]
pub fn replay(seed: u64, rows_max: usize) -> (Vec<String>, Result<Report, Box<Failure>>) {
    let mut world = World::new(seed, rows_max);
    // An assertion of the engine is a finding like any other: it must name its seed.
    let broken = match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(Ok(())) => None,
        Ok(Err(broken)) => Some(broken),
        Err(panic) => Some(Broken::new(Check::Assertion, message(panic.as_ref()))),
    };
    let mut report = world.report;
    report.hash = world.trace.hash();
    let rows = world.trace.rows();
    let result = match broken {
        None => Ok(report),
        Some(Broken { check, what }) => Err(Box::new(Failure { seed, check, what, rows: rows.clone(), report })),
    };
    (rows, result)
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod points;
#[cfg(test)]
mod tests;
