//! `mt-bench io`, `mt-bench replay` and `mt doctor` as processes: what they refuse, and that nothing is left behind in
//! whatever way they end.

use mt_tests::command::{Finished, Place, finish};
use mt_tests::mounts::{Ext4, Needs, mount_ram, must, privately};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
const BENCH: &str = env!("CARGO_BIN_EXE_mt-bench-under-test");
const RESTRICTED: &str = env!("CARGO_BIN_EXE_restricted");

/// One short pattern on a small file.
const SHORT: &str = "--rw mixed:70 --bs 64KiB --depth 4 --time 50ms --size 16MiB";

fn place() -> Place {
    let place = Place::new(BENCH);
    std::fs::create_dir(place.path("disk")).expect("a folder");
    place
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("a folder").next().is_none()
}

/// Bytes that are in use on the file system of a folder.
fn used(folder: &Path) -> u64 {
    let space = rustix::fs::statvfs(folder).expect("a file system");
    (space.f_blocks - space.f_bfree) * space.f_frsize
}

fn json(done: &Finished) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {done}"))
}

#[test]
fn one_pattern_is_measured_reported_and_compared() {
    let place = place();
    for (name, engine) in [("a", ""), ("b", "--engine psync")] {
        let done = place.ok(&format!("io disk {SHORT} {engine} --json {name}.json --html {name}.html"));
        assert!(done.out.contains("this pattern") && done.out.contains("mixed:70"), "{done}");
        let report: Value = serde_json::from_str(&place.read(&format!("{name}.json"))).expect("JSON");
        let cell = &report["paths"][0]["cells"][0];
        assert_eq!((&report["version"], &report["effort"]), (&1.into(), &"cell".into()));
        assert_eq!(cell["bytes_per_s"]["samples"].as_array().expect("samples").len(), 3);
        assert!(
            cell["latency"]["p50_us"].as_f64() > Some(0.0) && cell["fio"].as_str().unwrap().contains("rwmixread=70")
        );
        assert!(report["written_bytes"].as_u64() >= Some(16 << 20));
        assert!(place.read(&format!("{name}.html")).starts_with("<!doctype html>"));
    }
    assert!(is_empty(&place.path("disk")));
    let compared = place.ok("io --compare a.json b.json");
    assert!(compared.out.contains("this pattern"), "{compared}");
    let compared = json(&place.ok("io --compare a.json b.json --json -"));
    assert!(compared["rows"][0]["ratio"].as_f64() > Some(0.0));
    place.refused("io --compare a.json a.html", 2, &["a.html", "expected a report"]);
}

#[test]
fn what_cannot_be_measured_is_refused_by_name() {
    let place = place();
    place.write("file", "x");
    place.refused(&format!("io nowhere {SHORT}"), 2, &["nowhere", "mkdir"]);
    place.refused(&format!("io file {SHORT}"), 2, &["file", "expected a folder"]);
    place.refused("io disk --rw trim", 2, &["mixed:NN"]);
    place.refused("io disk --rw read --bs 1000", 2, &["multiple of 4096"]);
    place.refused("io disk --rw read --size 1000TiB", 3, &["1000 TiB", "free"]);
    place.refused("io disk --gpu first --quick", 2, &["--gpu"]);
    place.refused(&format!("io disk {SHORT} --json nowhere/a.json"), 2, &["nowhere/a.json", "no folder nowhere"]);
    place.refused(&format!("io disk {SHORT} --html disk"), 2, &["disk: expected a file"]);
    place.refused("replay nothing.json", 2, &["nothing.json", "train-7b"]);
    assert!(is_empty(&place.path("disk")));
}

#[test]
fn more_than_a_fifth_of_what_is_free_needs_a_yes() {
    privately(Needs::Ram, || {
        let place = place();
        let at = place.path("small");
        mount_ram("tmpfs", "size=128M", &at);
        let words = "io small --rw write --bs 64KiB --depth 4 --time 50ms --size 64MiB";
        place.refused(words, 2, &["50% of what is free", "--yes"]);
        let done = place.ok(&format!("{words} --yes"));
        assert!(done.out.contains("tmpfs is RAM"), "a path in RAM is warned of: {done}");
        assert!(is_empty(&at));
        assert_eq!(used(&at), 0);
    });
}

#[test]
fn a_disk_that_fills_up_meanwhile_leaves_nothing() {
    privately(Needs::Loop, || {
        let place = place();
        let ext4 = Ext4::new(place.path("image"), place.path("full"), 96 << 20, 512);
        let before = used(&ext4.at);
        let refused = place.refused("io full --rw write --size 512MiB --yes", 3, &["512 MiB"]);
        assert!(!refused.err.contains("panicked"));
        place.ok("io full --rw write --bs 64KiB --depth 4 --time 50ms --size 32MiB --yes");
        assert!(used(&ext4.at) <= before + (1 << 20), "{} {before}", used(&ext4.at));
        let names: Vec<_> = std::fs::read_dir(&ext4.at).expect("a folder").flatten().map(|e| e.file_name()).collect();
        assert_eq!(names, ["lost+found"]);
    });
}

#[test]
fn a_folder_that_cannot_be_written_is_refused() {
    privately(Needs::Ram, || {
        let place = place();
        let at = place.path("ro");
        mount_ram("tmpfs", "size=64M", &at);
        must("mount", &["-o", "remount,ro", at.to_str().expect("a path")]);
        place.refused("io ro --rw read --size 16MiB --yes", 4, &["ro", "Read-only file system"]);
        let doctor = finish(mt(&place, "doctor ro"));
        assert_eq!(doctor.code, Some(1), "{doctor}");
        assert!(doctor.out.contains("BAD") && doctor.out.contains("Read-only file system"), "{doctor}");
    });
}

/// Starts a long measurement and waits until its file takes space.
fn long(place: &Place, words: &str) -> Child {
    let before = used(&place.path("disk"));
    let mut command = place.command(words);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let start = Instant::now();
    while used(&place.path("disk")) < before + (8 << 20) || !is_empty(&place.path("disk")) {
        assert!(start.elapsed() < Duration::from_secs(60), "no file is made");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Ends a long measurement by a signal; its exit code.
fn ended(words: &str, signal: Signal) -> (Option<i32>, Place) {
    let place = place();
    mount_ram("tmpfs", "size=512M", &place.path("disk"));
    let mut child = long(&place, words);
    kill_process(Pid::from_child(&child), signal).expect("it runs");
    let code = child.wait().expect("it ends").code();
    assert!(is_empty(&place.path("disk")), "{words}: nothing has a name");
    let start = Instant::now();
    while used(&place.path("disk")) > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{words}: the space is not given back");
        std::thread::sleep(Duration::from_millis(5));
    }
    (code, place)
}

#[test]
fn nothing_is_left_after_a_stop_and_after_a_kill() {
    privately(Needs::Ram, || {
        let io = "io disk --rw write --bs 64KiB --depth 4 --time 600s --size 64MiB";
        assert_eq!(ended(io, Signal::TERM).0, Some(130));
        assert_eq!(ended(io, Signal::INT).0, Some(130));
        assert_eq!(ended(io, Signal::KILL).0, None);
        let replay = "replay train-7b --scale 0.002 --dir disk --ram 64MiB --passes 1000";
        assert_eq!(ended(replay, Signal::TERM).0, Some(130));
        assert_eq!(ended(replay, Signal::KILL).0, None);
    });
}

#[test]
fn a_list_is_planned_and_replayed() {
    let place = place();
    place.write(
        "list.json",
        r#"{"version": 1, "name": "five runs", "rows": [
        ["a", 3000000, "read", 100, "host"],
        ["b", 3000000, "update", 0, "device"], ["c", 3000000, "write", 200, "host"],
        ["d", 3000000, "read", 50, "host"], ["e", 3000000, "update", 50, "host"]]}"#,
    );
    let done = json(&place.ok("replay list.json --dir disk --ram 12MiB --passes 20 --json"));
    let runs = 5 * 3_014_656;
    assert_eq!((done["uses"].as_u64(), done["bytes"].as_u64()), (Some(5), Some(runs)));
    assert_eq!(done["replayed"]["seconds"].as_array().expect("passes").len(), 20);
    // What streams moves in each pass as predicted: the engine counts what it did, and what fills the window may be
    // counted with the pass before or behind.
    let number = |side: &str, name: &str| done[side][name].as_u64().expect("a number");
    let window = done["window_bytes"].as_u64().expect("a number");
    for name in ["read_bytes", "written_bytes"] {
        let (predicted, moved) = (number("predicted", name), number("replayed", name));
        assert!(predicted > 0 && predicted.abs_diff(moved) * 20 <= window, "{name}: {done}");
    }
    let all = json(&place.ok("replay list.json --dir disk --ram 64MiB --passes 1 --json"));
    assert_eq!(all["replayed"]["read_bytes"], 0, "everything stays: {all}");
    let text = place.ok("replay list.json --dir disk --ram 12MiB --plan-only");
    assert!(text.out.contains("predicted") && text.out.contains("replayed in RAM"), "{text}");
    for ram in ["1", "1MiB"] {
        let refused = place.refused(&format!("replay list.json --dir disk --passes 1 --ram {ram}"), 3, &["RAM needs"]);
        let words = refused.err.split("run: mt-bench ").nth(1).unwrap_or_else(|| panic!("no command: {refused}"));
        assert!(words.contains("--ram"), "{refused}");
        place.ok(words.trim());
    }
    assert!(is_empty(&place.path("disk")));
}

fn mt(place: &Place, words: &str) -> Command {
    let mut command = place.command("");
    command = {
        let mut other = Command::new(MT);
        other.current_dir(command.get_current_dir().expect("the place's folder")).stdin(Stdio::null());
        other
    };
    command.args(words.split_whitespace());
    command
}

#[test]
fn the_doctor_names_what_is_in_the_way() {
    let place = place();
    let done = finish(mt(&place, "doctor disk nowhere --json"));
    let checks = json(&done);
    assert_eq!((done.code, &checks["worst"]), (Some(1), &"bad".into()), "{done}");
    let all = checks["checks"].as_array().expect("checks");
    let of = |what: &str| all.iter().find(|check| check["what"] == what).unwrap_or_else(|| panic!("{what}: {done}"));
    assert_eq!(of("nowhere")["level"], "bad");
    place.write("disk-file", "x");
    let done = finish(mt(&place, "doctor nowhere disk-file"));
    for said in ["nowhere: there is no such folder", "mkdir -p nowhere", "disk-file: not a folder", "mt doctor ."] {
        assert!(done.out.contains(said), "no {said:?}: {done}");
    }
    for what in ["kernel", "io_uring", "lockable memory", "huge pages", "memory", "cores", "GPU", "NVRTC", "cuBLASLt"] {
        assert!(of(what)["found"].as_str().is_some_and(|found| !found.is_empty()), "{what}: {done}");
    }
    let mut refused = Command::new(RESTRICTED);
    refused.args(["uring-eperm", MT, "doctor", "disk"]).current_dir(place.path(".")).stdin(Stdio::null());
    let refused = finish(refused);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.out.contains("BAD") && refused.out.contains("kernel.io_uring_disabled"), "{refused}");
    assert!(is_empty(&place.path("disk")));
}
