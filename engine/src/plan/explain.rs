//! A plan as text, for people and for golden tests.

use super::types::{Interval, Place, Plan, Prediction, Shape};
use crate::id::RegionId;
use std::fmt::Write;

/// What a plan places, streams and costs, region by region.
pub fn explain(plan: &Plan, prediction: &Prediction, shape: &Shape<'_>) -> String {
    let mut text = String::new();
    header(&mut text, plan, prediction).expect("writing to a string does not fail");
    regions(&mut text, plan, shape).expect("writing to a string does not fail");
    window(&mut text, plan).expect("writing to a string does not fail");
    text
}

fn header(text: &mut String, plan: &Plan, prediction: &Prediction) -> std::fmt::Result {
    let again = if plan.schedule.cyclic { "repeated" } else { "once" };
    writeln!(text, "sweep       {} nodes, {} accesses, {again}", plan.schedule.nodes.len(), plan.intervals.len())?;
    let (placed, window) = (bytes(plan.placed_bytes), bytes(plan.window_bytes));
    writeln!(text, "arena       {placed} placed, {window} window, peak {}", bytes(prediction.peak_host_bytes))?;
    let disk = prediction.disk;
    write!(text, "disk        {} read, {} written a sweep", bytes(disk.read_bytes), bytes(disk.write_bytes))?;
    writeln!(text, ", {} for placed runs at a commit", bytes(disk.commit_bytes))?;
    let (seconds, bound) = (prediction.seconds, prediction.lower_bound_seconds);
    writeln!(text, "time        {seconds:.6} s a sweep, at least {bound:.6} s")
}

fn regions(text: &mut String, plan: &Plan, shape: &Shape<'_>) -> std::fmt::Result {
    writeln!(text, "region            kind          placed      streamed   accesses  spilled")?;
    for (index, region) in shape.regions.iter().enumerate() {
        let id = RegionId(index as u32);
        let of_region = || plan.intervals.iter().filter(|interval| interval.run.region == id);
        let (placed, streamed) = (run_bytes(of_region(), true), run_bytes(of_region(), false));
        let spilled = plan.spilled.iter().filter(|run| run.region == id).count();
        let kind = format!("{:?}", region.kind).to_lowercase();
        let (placed, streamed) = (bytes(placed), bytes(streamed));
        let accesses = of_region().count();
        writeln!(text, "{:<16}  {kind:<12}{placed:>10}  {streamed:>12}  {accesses:>9}  {spilled:>7}", region.name)?;
    }
    Ok(())
}

/// Bytes of the distinct runs of these intervals that are placed, or that are streamed.
fn run_bytes<'a>(intervals: impl Iterator<Item = &'a Interval>, placed: bool) -> u64 {
    let mut runs: Vec<_> =
        intervals.filter(|interval| (interval.place != Place::Window) == placed).map(|i| (i.run, i.bytes)).collect();
    runs.sort_unstable();
    runs.dedup();
    runs.iter().map(|&(_, bytes)| bytes).sum()
}

fn window(text: &mut String, plan: &Plan) -> std::fmt::Result {
    let streamed: Vec<u64> = (0u64..)
        .zip(&plan.intervals)
        .filter(|(_, interval)| interval.place == Place::Window)
        .map(|(index, _)| index)
        .collect();
    if streamed.is_empty() {
        return writeln!(text, "window      nothing streams");
    }
    let ahead: u64 = streamed.iter().map(|&index| index - u64::from(plan.intervals[index as usize].fetch_at)).sum();
    let (whole, tenth) = (ahead / streamed.len() as u64, ahead * 10 / streamed.len() as u64 % 10);
    write!(text, "window      {} intervals a sweep, fetched {whole}.{tenth} accesses ahead", streamed.len())?;
    writeln!(text, " on average, {} before the sweep begins", plan.exit.prefetched.len())
}

/// Bytes in the largest binary unit that leaves at least 1, with one decimal, cut off.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && count >> (10 * (unit + 1)) > 0 {
        unit += 1;
    }
    let tenths = (u128::from(count) * 10) >> (10 * unit);
    if unit == 0 { format!("{count} B") } else { format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]) }
}
