//! Processes that are killed or stopped (D05), and two of them on one store (D07). `MT_KILL_ROUNDS` sets the number of
//! kills at random moments (500 for the full run); without it there are a few.

use mt_tests::command::Place;
use mt_tests::small::{self, Normal, Small};
use mt_tests::walk::Walk;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
const COMMIT_STEPS: &str = env!("CARGO_BIN_EXE_commit-steps");
const STEPS: usize = 24;

fn place() -> Place {
    let place = Place::new(MT);
    place.model("m", &Small::m0(1));
    place.write("t.txt", small::text(1, 20_000));
    place
}

fn train(run: &str, steps: usize) -> String {
    format!(
        "train --model m --data t.txt --seq-len 64 --batch 4 --micro-batch 2 --lr 1e-3 --warmup 2 \
         --threads 2 --ram 24MiB \
         --checkpoint-every 2 --steps {steps} --run {run}"
    )
}

fn rounds(few: usize) -> usize {
    std::env::var("MT_KILL_ROUNDS").map_or(few, |r| r.parse().expect("MT_KILL_ROUNDS is a number"))
}

/// Starts the command, kills it after the delay, and says whether it had ended by itself.
fn killed(place: &Place, words: &str, delay: Duration) -> bool {
    let mut child = place.start(words);
    std::thread::sleep(delay);
    let ended = child.try_wait().expect("the child can be waited for").is_some();
    child.kill().expect("a child of ours can be killed");
    child.wait().expect("the child ends");
    ended
}

/// Brings a run that was killed at any moment to its end: resumes it, or starts it if it was killed before the folder
/// was one.
fn complete(place: &Place, run: &str) {
    let words =
        if place.path(run).join("settings.toml").exists() { format!("resume {run}") } else { train(run, STEPS) };
    place.ok(&words);
}

#[test]
fn a_killed_run_resumes_to_the_very_same_weights() {
    let place = place();
    let started = Instant::now();
    place.ok(&train("whole", STEPS));
    let took = started.elapsed();
    let (losses, weights) = (place.losses("whole"), place.weights("whole"));
    let mut random = Normal::new(20);
    for round in 0..rounds(4) {
        let run = format!("k{round}");
        let mut words = train(&run, STEPS);
        let mut kills = 0;
        // Every round: killed during the run, and now and then once more during the resume.
        loop {
            let delay = took.mul_f64(random.uniform());
            if killed(&place, &words, delay) || kills == 2 {
                break;
            }
            kills += 1;
            if !place.path(&run).join("settings.toml").exists() {
                continue;
            }
            words = format!("resume {run}");
            if random.below(2) == 0 {
                break;
            }
        }
        complete(&place, &run);
        place.ok(&format!("verify {run}"));
        assert_eq!(place.losses(&run), losses, "round {round}: losses");
        assert!(place.weights(&run).bits() == weights.bits(), "round {round}: weights after {kills} kills");
        std::fs::remove_dir_all(place.path(&run)).expect("the run can be deleted");
    }
}

/// A process that commits every step, and what it said before it was killed.
struct Committer {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    /// Last step that it called durable, and the one that it began to commit last.
    durable: u64,
    begun: u64,
}

impl Committer {
    /// Starts it on a store whose last commit is of step `held`.
    fn start(store: &Path, room: &str, pace: &str, held: u64) -> Committer {
        let mut command = Command::new(COMMIT_STEPS);
        command.arg(store).args([room, pace]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Committer { child, lines, durable: held, begun: held }
    }

    /// Reads a line; None when there is none any more, or when death tore it.
    fn line(&mut self) -> Option<String> {
        let mut text = String::new();
        self.lines.read_line(&mut text).ok().filter(|_| text.ends_with('\n'))?;
        let mut words = text.trim().splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a step");
        let (step, durable) = (number(), number());
        let place = words.next().expect("a place").to_owned();
        self.durable = self.durable.max(durable);
        // From before the mark on, since what is printed after it may not come through any more.
        if place == "before the commit mark" {
            self.begun = step;
        }
        Some(place)
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it waits for this");
    }

    /// Kills it, opens the store, and compares that with what it said. Gives the step that the store holds.
    fn kill(mut self, walk: &Walk, store: &Path, told: &str) -> u64 {
        self.child.kill().expect("a child of ours can be killed");
        self.child.wait().expect("the child ends");
        while self.line().is_some() {}
        match walk.check(store) {
            Ok(step) => {
                assert!(step >= self.durable, "{told}: step {} was durable, step {step} is there", self.durable);
                let last = self.begun.max(self.durable);
                assert!(step <= last, "{told}: step {step} is there, but only {last} was begun");
                step
            }
            Err(mt_engine::Error::NoStore { .. } | mt_engine::Error::NoCommit { .. }) => {
                assert_eq!((self.durable, self.begun), (0, 0), "{told}: the store is gone");
                0
            }
            Err(error) => panic!("{told}: {error}"),
        }
    }
}

#[test]
fn a_process_killed_at_any_boundary_of_a_step_leaves_a_whole_commit() {
    let place = Place::new(MT);
    for room in ["tight", "roomy"] {
        let (walk, store) = (Walk::new(room == "tight"), place.path(room));
        assert_eq!(walk.is_placed(), room == "roomy");
        let mut random = Normal::new(11);
        let (mut boundary, mut places, mut held) = (0, Vec::new(), 0);
        // The first step after an open, and the one that follows it.
        while places.iter().filter(|place| *place == "end").count() < 2 {
            let mut committer = Committer::start(&store, room, "wait", held);
            let mut place = String::new();
            for passed in 0..=boundary {
                if passed > 0 {
                    committer.go_on();
                }
                place = committer.line().expect("it waits to be told");
            }
            // The process stands still; what it has begun goes on.
            std::thread::sleep(Duration::from_micros(random.below(3_000) as u64));
            held = committer.kill(&walk, &store, &format!("{room}, boundary {boundary}, {place}"));
            places.push(place);
            boundary += 1;
        }
        let count = |what: &str| places.iter().filter(|place| place.contains(what)).count();
        assert_eq!((count("forward of unit"), count("backward of unit")), (8, 8), "all units, twice: {places:?}");
        assert_eq!(count("the commit mark"), 4, "before and after, twice");
    }
}

#[test]
fn a_process_killed_at_any_moment_leaves_a_whole_commit() {
    let place = Place::new(MT);
    let mut random = Normal::new(12);
    let rooms = ["tight", "roomy"].map(|room| (room, Walk::new(room == "tight"), place.path(room)));
    let mut held = [0, 0];
    for round in 0..rounds(24) {
        let (room, walk, store) = &rooms[round % 2];
        let mut committer = Committer::start(store, room, "run", held[round % 2]);
        // In some rounds from the start of the process on, which finds what the round before has left; in most from some
        // step on.
        for _ in 0..random.below(4) {
            while committer.line().is_some_and(|place| place != "end") {}
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000) as u64));
        held[round % 2] = committer.kill(walk, store, &format!("{room}, round {round}"));
    }
}

#[test]
fn a_run_killed_before_its_first_commit_imports_again() {
    let place = place();
    place.model("big", &Small::with(4, serde_json::json!({"num_hidden_layers": 24, "vocab_size": 4096})));
    let words = train("r", 2).replace("--model m", "--model big").replace("--ram 24MiB", "--ram 200MiB");
    let mut child = place.start(&words);
    let started = Instant::now();
    while !place.path("r/store/volume.mt").exists() && started.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_micros(200));
    }
    child.kill().expect("a child of ours can be killed");
    child.wait().expect("the child ends");
    let resumed = place.ok("resume r");
    let said = format!("{}{}", resumed.out, resumed.err);
    assert!(said.contains("no commit yet, importing again") || place.metrics("r").len() == 2, "{resumed}");
    assert_eq!(place.metrics("r").len(), 2);
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
    let stopped = place.run(&format!("{} --store s --stop-at 1", train("r", 100)));
    assert!(matches!(stopped.code, Some(0 | 130)), "{stopped}");
    let size = place.bytes("s");
    for cycle in 2..8 {
        if cycle % 3 == 0 {
            killed(&place, "resume r", Duration::from_millis(60 * cycle));
        }
        let stopped = place.run(&format!("resume r --stop-at {}", 10 * cycle));
        assert!(matches!(stopped.code, Some(0 | 130)), "{stopped}");
        assert_eq!(place.bytes("s"), size, "cycle {cycle}");
    }
    assert_eq!(place.read("s/mine.txt"), "keep me");
    place.ok("rm r --yes");
    assert_eq!(place.read("s/mine.txt"), "keep me");
}

#[test]
fn a_store_path_that_is_too_long_is_refused() {
    let place = place();
    let long = ["x"; 15].map(|c| c.repeat(200)).join("/");
    let done = place.run(&format!("{} --store {long}/{long}", train("r", 1)));
    assert!(matches!(done.code, Some(2 | 4)), "{done}");
    assert!(done.err.contains("xxx") && !done.err.contains("panicked"), "{done}");
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
