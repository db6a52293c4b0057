//! A plan as text, for people and for golden tests.

use super::outcome::{Prediction, Station};
use super::types::{Interval, Place, Plan, Shape};
use crate::id::{RegionId, Tier};
use std::fmt::Write;

/// What a plan places, streams and costs, region by region.
pub fn explain(plan: &Plan, prediction: &Prediction, shape: &Shape<'_>) -> String {
    let mut text = String::new();
    let parts = [header, devices, time].into_iter().try_for_each(|part| part(&mut text, plan, prediction));
    parts.expect("writing to a string does not fail");
    regions(&mut text, plan, shape).expect("writing to a string does not fail");
    windows(&mut text, plan).expect("writing to a string does not fail");
    waits(&mut text, plan, prediction).expect("writing to a string does not fail");
    text
}

fn header(text: &mut String, plan: &Plan, prediction: &Prediction) -> std::fmt::Result {
    let again = if plan.schedule.cyclic { "repeated" } else { "once" };
    writeln!(text, "sweep       {} nodes, {} accesses, {again}", plan.schedule.nodes.len(), plan.intervals.len())?;
    let (placed, window) = (bytes(plan.placed_bytes), bytes(plan.window_bytes));
    write!(text, "arena       {placed} placed, {window} window")?;
    for (what, count) in [("staging", plan.staging_bytes), ("for work", plan.host_work_bytes)] {
        if count > 0 {
            write!(text, ", {} {what}", bytes(count))?;
        }
    }
    writeln!(text, ", peak {}", bytes(prediction.peak_host_bytes))?;
    let disk = prediction.disk;
    write!(text, "disk        {} read, {} written a sweep", bytes(disk.read_bytes), bytes(disk.write_bytes))?;
    writeln!(text, ", {} for placed runs at a commit", bytes(disk.commit_bytes))
}

fn devices(text: &mut String, plan: &Plan, prediction: &Prediction) -> std::fmt::Result {
    for (share, device) in plan.devices.iter().zip(&prediction.devices) {
        let (id, peak) = (share.device.0, bytes(device.peak_bytes));
        let (placed, window, work) = (share.placed_bytes, share.window_bytes, share.work_bytes);
        write!(text, "vram {id:<6} {} placed, {} window", bytes(placed), bytes(window))?;
        writeln!(text, ", {} for work, peak {peak}", bytes(work))?;
        let (up, down) = (bytes(device.upload_bytes), bytes(device.download_bytes));
        write!(text, "link {id:<6} {up} up, {down} down a sweep")?;
        writeln!(text, ", {} down for placed runs at a commit", bytes(device.commit_bytes))?;
    }
    Ok(())
}

fn time(text: &mut String, _: &Plan, prediction: &Prediction) -> std::fmt::Result {
    let (seconds, bound) = (prediction.seconds, prediction.lower_bound_seconds);
    writeln!(text, "time        {seconds:.6} s a sweep, at least {bound:.6} s")
}

fn regions(text: &mut String, plan: &Plan, shape: &Shape<'_>) -> std::fmt::Result {
    let vram = if plan.devices.is_empty() { "" } else { "          vram" };
    writeln!(text, "region            kind    {vram}      placed      streamed   accesses  spilled")?;
    for (index, region) in shape.regions.iter().enumerate() {
        let id = RegionId(index as u32);
        let of_region = || plan.intervals.iter().filter(|interval| interval.run.region == id);
        let in_vram = run_bytes(of_region(), |home| matches!(home, Tier::Device(_)));
        let placed = run_bytes(of_region(), |home| home == Tier::Host);
        let streamed = run_bytes(of_region(), |home| home == Tier::Disk);
        let spilled = plan.spilled.iter().filter(|run| run.region == id).count();
        let kind = format!("{:?}", region.kind).to_lowercase();
        let vram = if plan.devices.is_empty() { String::new() } else { format!("{:>10}  ", bytes(in_vram)) };
        let (placed, streamed) = (bytes(placed), bytes(streamed));
        let accesses = of_region().count();
        write!(text, "{:<16}  {kind:<12}{vram}{placed:>10}  ", region.name)?;
        writeln!(text, "{streamed:>12}  {accesses:>9}  {spilled:>7}")?;
    }
    Ok(())
}

/// Bytes of the distinct runs of these intervals with such a home.
fn run_bytes<'a>(intervals: impl Iterator<Item = &'a Interval>, is_such: fn(Tier) -> bool) -> u64 {
    let mut runs: Vec<_> = intervals.filter(|i| is_such(i.home.tier())).map(|i| (i.run, i.bytes)).collect();
    runs.sort_unstable();
    runs.dedup();
    runs.iter().map(|&(_, bytes)| bytes).sum()
}

fn windows(text: &mut String, plan: &Plan) -> std::fmt::Result {
    let ahead = |at: fn(&Interval) -> u32, takes: &dyn Fn(&Interval) -> bool| {
        let stays = (0u64..).zip(&plan.intervals).filter(|(_, interval)| takes(interval));
        stays.map(|(index, interval)| index - u64::from(at(interval))).collect::<Vec<u64>>()
    };
    let fetched = ahead(|interval| interval.fetch_at, &Interval::takes_host_window);
    window(text, "window", &fetched, plan.exit.prefetched.len())?;
    for held in plan.exit.devices.iter().filter(|held| plan.devices.iter().any(|share| share.device == held.device)) {
        let tier = Tier::Device(held.device);
        let uploaded = ahead(|interval| interval.upload_at, &|i: &Interval| i.tier == tier && i.place == Place::Window);
        window(text, &format!("window {}", held.device.0), &uploaded, held.prefetched.len())?;
    }
    Ok(())
}

/// One window, with the number of accesses by which each of its stays may begin ahead.
fn window(text: &mut String, name: &str, ahead: &[u64], prefetched: usize) -> std::fmt::Result {
    if ahead.is_empty() {
        return writeln!(text, "{name:<11} nothing streams");
    }
    let (sum, count) = (ahead.iter().sum::<u64>(), ahead.len() as u64);
    let (whole, tenth) = (sum / count, sum * 10 / count % 10);
    write!(text, "{name:<11} {count} intervals a sweep, fetched {whole}.{tenth} accesses ahead")?;
    writeln!(text, " on average, {prefetched} before the sweep begins")
}

/// Who works and who waits for what. Without a device there is one user, and the time says it all.
fn waits(text: &mut String, plan: &Plan, prediction: &Prediction) -> std::fmt::Result {
    if plan.devices.is_empty() {
        return Ok(());
    }
    for busy in &prediction.busy {
        write!(text, "{:<11} busy {:.6} s", station(busy.station), busy.seconds)?;
        let mut before = "; waits";
        for stall in prediction.stalls.iter().filter(|stall| stall.user == busy.station) {
            write!(text, "{before} {:.6} s for {}", stall.seconds, station(stall.cause))?;
            before = ",";
        }
        writeln!(text)?;
    }
    Ok(())
}

fn station(station: Station) -> String {
    match station {
        Station::HostCompute => "host".to_owned(),
        Station::Compute(device) => format!("device {}", device.0),
        Station::DiskRead => "disk reads".to_owned(),
        Station::DiskWrite => "disk writes".to_owned(),
        Station::Upload(device) => format!("link {} up", device.0),
        Station::Download(device) => format!("link {} down", device.0),
        Station::Commit => "commits".to_owned(),
    }
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
