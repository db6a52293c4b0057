//! Processes that are killed (D05). `MT_KILL_ROUNDS` sets the number of kills at random moments (500 for the full run);
//! without it there are a few. Stop signals are in `stops.rs`.

use mt_tests::command::Place;
use mt_tests::small::{self, Normal, Small};
use mt_tests::tensors::Tensors;
use mt_tests::walk::Walk;
use serde_json::Value;
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
         --threads 2 --ram 24MiB --checkpoint-every 1 --steps {steps} --run {run}"
    )
}

fn rounds(few: usize) -> usize {
    std::env::var("MT_KILL_ROUNDS").map_or(few, |r| r.parse().expect("MT_KILL_ROUNDS is a number"))
}

/// Starts the command, kills it after the delay, and says whether it had ended by itself. What it had called durable by
/// then is there.
fn killed(place: &Place, run: &str, words: &str, delay: Duration) -> bool {
    let live = place.live(&format!("{words} --json"));
    std::thread::sleep(delay);
    let done = live.kill();
    let events = done.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let step = |event: &Value| event["step"].as_u64().expect("a number");
    // Step N begins the commit of step N - 1 once that of step N - 2 is durable.
    let durable = events.filter_map(|event| match event["event"].as_str() {
        Some("committed") => Some(step(&event)),
        Some("step") => step(&event).checked_sub(2),
        _ => None,
    });
    if let Some(durable) = durable.max() {
        let shown: Value = serde_json::from_str(&place.ok(&format!("inspect {run} --json")).out).expect("JSON");
        let found = shown["note"]["step"].as_u64().unwrap_or_else(|| panic!("no commit, {durable} was: {shown}"));
        assert!(found >= durable, "step {durable} was durable, step {found} is there");
        assert!(place.metrics_whole(run) as u64 >= found, "lines of committed steps are there");
    }
    done.code.is_some()
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
            if killed(&place, &run, &words, delay) || kills == 2 {
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
        // In some rounds from the start of the process on, which finds what the round before has left; in most from
        // some step on.
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
fn an_export_killed_half_way_is_never_taken_for_whole() {
    let place = place();
    place.ok(&train("r", 2));
    let started = Instant::now();
    place.ok("export r --out whole --max-shard 64KB");
    let took = started.elapsed();
    let whole = std::fs::read_dir(place.path("whole")).expect("the export").count();
    let mut random = Normal::new(13);
    for round in 0..rounds(12) {
        let mut child = place.start("export r --out o --max-shard 64KB");
        std::thread::sleep(took.mul_f64(random.uniform()));
        child.kill().expect("a child of ours can be killed");
        child.wait().expect("the child ends");
        // Either all of it under its name, or nothing.
        if let Ok(entries) = std::fs::read_dir(place.path("o")) {
            assert_eq!(entries.count(), whole, "round {round}");
            assert!(Tensors::read_model(&place.path("o")).bits() == Tensors::read_model(&place.path("whole")).bits());
            std::fs::remove_dir_all(place.path("o")).expect("the export can be deleted");
        }
    }
    let done = place.ok("export r --out o --max-shard 64KB");
    assert!(Tensors::read_model(&place.path("o")).bits() == Tensors::read_model(&place.path("whole")).bits());
    let here = std::fs::read_dir(place.path("")).expect("the folder").flatten();
    let left: Vec<_> = here.map(|e| e.file_name()).filter(|name| name.to_string_lossy().contains("partial")).collect();
    assert!(left.is_empty(), "what killed exports left is gone: {left:?}: {done}");
}

#[test]
fn a_volume_that_was_cut_off_is_named_and_never_zeros() {
    let place = place();
    // Room for all scratch pages: those that stream lie behind the rest of the file, where nothing is lost with them.
    place.ok(&train("r", 4).replace("24MiB", "200MiB"));
    let volume = place.path("r/store/volume.mt");
    let bytes = std::fs::read(&volume).expect("the volume");
    let cut = |length: usize| {
        std::fs::write(&volume, &bytes[..length]).expect("the volume can be cut off");
        for words in ["verify r", "resume r --steps 5 --allow-change steps", "export r --out o"] {
            place.refused(words, 4, &["r/store", &length.to_string()]);
        }
        assert!(!place.path("o").exists());
    };
    // Nothing at all, where there were commits.
    std::fs::write(&volume, "").expect("the volume can be emptied");
    for words in ["verify r", "resume r --steps 5 --allow-change steps", "export r --out o"] {
        let done = place.run(words);
        assert!(matches!(done.code, Some(2 | 4)) && done.err.contains("store"), "{done}");
    }
    assert!(!place.path("o").exists() && place.bytes("r/store") == 0, "it is not made anew");
    // One superblock of four; no page table; few of the pages; all but the last block.
    [4096, 20_480, bytes.len() / 16, bytes.len() - 4096].into_iter().for_each(cut);
    std::fs::write(&volume, &bytes).expect("the volume can be written");
    place.ok("verify r");
}
