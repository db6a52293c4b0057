//! Whose a store is (D07): two processes on one, locks of dead processes, directories with files of others, paths that
//! are too long, and what many starts and stops leave behind.

use mt_tests::command::Place;
use mt_tests::small::{self, Small};
use std::time::{Duration, Instant};

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");

fn place() -> Place {
    let place = Place::new(MT);
    place.model("m", &Small::m0(1));
    place.write("t.txt", small::text(1, 20_000));
    place
}

fn train(run: &str, steps: usize) -> String {
    format!(
        "train --model m --data t.txt --seq-len 64 --batch 4 --micro-batch 2 --lr 1e-3 --warmup 2 --threads 2 \
         --ram 24MiB --checkpoint-every 2 --steps {steps} --run {run}"
    )
}

#[test]
fn a_store_in_use_is_refused_and_the_owner_named() {
    let place = place();
    let mut child = place.start(&format!("{} --store s", train("long", 100_000)));
    let started = Instant::now();
    while place.metrics("long").is_empty() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    place.refused(&format!("{} --store s", train("other", 2)), 2, &[&pid]);
    place.refused("resume long", 2, &[&pid]);
    assert!(place.path("long/settings.toml").exists(), "a refusal leaves the run alone");
    child.kill().expect("a child of ours can be killed");
    child.wait().expect("the child ends");
    place.ok("verify long");
    let stop = place.metrics("long").len() + 2;
    let resumed = place.run(&format!("resume long --stop-at {stop}"));
    assert!(matches!(resumed.code, Some(0 | 130)), "the lock of a dead process does not hold: {resumed}");
}

#[test]
fn starting_and_stopping_does_not_grow_the_store_and_foreign_files_stay() {
    let place = place();
    place.write("s/mine.txt", "keep me");
    let stopped = place.run(&format!("{} --store s --stop-at 1", train("r", 400)));
    assert_eq!(stopped.code, Some(130), "{stopped}");
    // Metrics and the list of processes grow; nothing else may.
    let beside = || place.bytes("r") - place.bytes("r/metrics.jsonl") - place.bytes("r/processes.jsonl");
    let sizes = (place.bytes("s"), beside());
    for cycle in 2..22 {
        if cycle % 3 == 0 {
            let mut live = place.live("resume r --json");
            live.until("step", |_| true);
            live.kill();
        }
        let stopped = place.run(&format!("resume r --stop-at {}", 10 * cycle));
        assert_eq!(stopped.code, Some(130), "{stopped}");
        // Each process plans with what it has in RAM itself, so that one may stream a few pages more than another.
        let grown = place.bytes("s").saturating_sub(sizes.0);
        assert!(grown < 1 << 20 && beside() == sizes.1, "cycle {cycle}: {grown} bytes more");
    }
    assert_eq!(place.read("s/mine.txt"), "keep me");
    place.ok("rm r --yes");
    assert_eq!(place.read("s/mine.txt"), "keep me");
}

#[test]
fn a_foreign_file_where_the_store_would_be_is_left_alone() {
    let place = place();
    let mut late = vec![0; 100_000];
    late[50_000] = 1;
    let foreign = [
        ("a", vec![7; 100_000]),
        ("b", b"a few bytes of somebody else's".to_vec()),
        ("c", vec![0; 4096]),
        ("d", vec![0; 16_384]),
        ("e", vec![0; 1 << 20]),
        ("f", late),
    ];
    for (dir, content) in foreign {
        place.write(&format!("{dir}/volume.mt"), &content);
        let done = place.run(&format!("{} --store {dir}", train("r", 1)));
        assert!(matches!(done.code, Some(2 | 4)) && done.err.contains("volume.mt"), "{done}");
        assert_eq!(std::fs::read(place.path(dir).join("volume.mt")).expect("it is there"), content);
        assert!(!place.path("r").exists());
    }
}

#[test]
fn a_store_path_that_is_too_long_is_refused() {
    let place = place();
    let name = "x".repeat(3_000);
    let deep = ["x"; 30].map(|c| c.repeat(200)).join("/");
    for path in [name, deep] {
        let done = place.run(&format!("{} --store {path}", train("r", 1)));
        assert!(matches!(done.code, Some(2 | 4)), "{done}");
        assert!(done.err.contains("xxx") && done.err.contains("too long") && !done.err.contains("panicked"), "{done}");
        let _ = std::fs::remove_dir_all(place.path("r"));
    }
    // Long, but not too long for the system: it works, to the end and back.
    let path = ["y"; 15].map(|c| c.repeat(199)).join("/");
    place.ok(&format!("{} --store {path}", train("q", 2)));
    place.ok("verify q");
    place.ok("rm q --yes");
}

#[test]
fn a_store_of_another_run_is_not_taken() {
    let place = place();
    place.ok(&format!("{} --store s", train("first", 2)));
    place.refused(&format!("{} --store s", train("second", 2)), 2, &["s"]);
    place.ok("verify first");
    place.ok(&format!("{} --store s2", train("third", 2)));
    std::fs::rename(place.path("s"), place.path("old")).expect("the store can be moved");
    std::fs::rename(place.path("s2"), place.path("s")).expect("the store can be moved");
    let swapped = place.run("verify first");
    assert!(matches!(swapped.code, Some(2 | 4)), "another run's store is not read as this one's: {swapped}");
    let uuid = |run: &str| {
        let record: serde_json::Value = serde_json::from_str(&place.read(&format!("{run}/run.json"))).expect("JSON");
        record["uuid"].as_str().expect("an id").to_owned()
    };
    let path = place.path("s").display().to_string();
    for words in ["verify first", "inspect first", "export first --out o", "resume first", "rm first --yes"] {
        place.refused(words, 2, &[&path, &uuid("first"), &uuid("third")]);
    }
    assert!(place.ok("ls .").out.contains("its store does not open"), "the list goes on");
    assert!(place.path("s/volume.mt").exists(), "another run's store is not removed");
    place.ok(&format!("resume first --store {}={}", place.path("s").display(), place.path("old").display()));
}
