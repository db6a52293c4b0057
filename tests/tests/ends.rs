//! How commands end, and what they leave: refusals that change nothing, runs that are never removed once they have
//! begun, pipes that nobody reads, folders that were copied, moved or cannot be written. Real processes on a small
//! model.

use mt_tests::command::{Finished, Place, finish};
use mt_tests::small::{self, Small};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
const RESTRICTED: &str = env!("CARGO_BIN_EXE_restricted");

/// Flags of a short run on `place`.
const RUN: &str = "train --model m --data t.txt --seq-len 32 --batch 4 --lr 1e-3 --warmup 1 --threads 2 --no-shuffle";

fn place() -> Place {
    let place = Place::new(MT);
    place.model("m", &Small::m0(1));
    place.write("t.txt", small::text(1, 20_000));
    place
}

/// `RUN` with another value of a flag that it has.
fn run_with(flag: &str, value: &str) -> String {
    let mut words = RUN.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let at = words.iter().position(|word| word == flag).expect("the run has this flag");
    words[at + 1] = value.to_owned();
    words.join(" ")
}

/// Waits until a run has made a step.
fn wait_for_step(place: &Place, run: &str) {
    let started = Instant::now();
    while place.metrics(run).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "no step within a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("the child runs");
}

/// The output of a child whose pipes were not read yet.
fn ended(child: Child) -> Finished {
    let line = format!("{child:?}");
    let output = child.wait_with_output().expect("the child ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Finished { line, code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn piped(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder can be made");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).expect("a file can be copied")),
        }
    }
}

/// The lines of JSON that a command printed.
fn events(done: &Finished) -> Vec<Value> {
    done.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

#[test]
fn an_export_folder_that_appears_during_training_costs_neither_run_nor_model() {
    let place = place();
    let child = piped(place.command(&format!("{RUN} --steps 60 --run r --export out")));
    wait_for_step(&place, "r");
    place.write("out/mine", "kept");
    let done = ended(child);
    assert_eq!(done.code, Some(2), "{done}");
    assert!(done.err.contains("the model is in") && done.err.contains("out-2"), "{done}");
    let exported = mt_tests::tensors::Tensors::read_model(&place.path("out-2"));
    assert_eq!(exported.bits(), place.weights("r").bits());
    assert_eq!((place.read("out/mine").as_str(), place.metrics("r").len()), ("kept", 60));
    // The run is finished; what is missing of it can be asked for again.
    place.ok("resume r --export again");
    assert_eq!(mt_tests::tensors::Tensors::read_model(&place.path("again")).bits(), exported.bits());
}

#[test]
fn what_ends_before_the_first_step_leaves_nothing() {
    let place = place();
    place.write("file", "x");
    rustix::fs::mkfifoat(rustix::fs::CWD, place.path("pipe"), 0o600.into()).expect("a pipe");
    std::os::unix::fs::symlink("nowhere", place.path("link")).expect("a link");
    for (flags, code, parts) in [
        ("--store file", 2, ["file: --store: expected a folder for pages, ", "found a file"]),
        ("--store s --store file/s", 2, ["file/s: --store: expected a folder for pages, ", "found a file at "]),
        ("--store pipe", 2, ["--store", "found a pipe"]),
        ("--store link", 2, ["--store", "found a link that leads nowhere"]),
        ("--store s --store ./s", 2, ["s: --store: expected a folder for pages, ", "found the same folder twice"]),
        (
            "--export file",
            2,
            ["file: export folder: expected a folder that does not exist or is empty", "found a file"],
        ),
        ("--export file/out", 2, ["export folder", "found a file at file"]),
        ("--export pipe", 2, ["export folder", "found a pipe"]),
        ("--export link", 2, ["export folder", "found a link that leads nowhere"]),
        ("--export m", 2, ["export folder", "found a folder with files"]),
        ("--durability none --export file/out", 2, ["export folder", "found a file at file"]),
        ("--durability none --export m", 2, ["export folder", "found a folder with files"]),
        ("--trace m", 2, ["m: --trace: expected a new file or an earlier trace", "found a folder"]),
        ("--trace pipe", 2, ["--trace", "found a pipe"]),
        ("--trace t.txt", 2, ["--trace", "found another file"]),
        ("--trace none/t", 2, ["none/t: --trace: ", "found no such folder above it"]),
        ("--trace file/t", 2, ["--trace", "found a file where its folder should be"]),
        ("--trace-steps 2", 2, ["--trace-steps: expected --trace FILE beside it", "found 2"]),
        ("--ram 1MiB", 3, ["RAM", "run: mt train"]),
    ] {
        place.refused(&format!("{RUN} --steps 2 --run runs/r {flags}"), code, &parts);
        assert!(!place.path("runs/r").exists(), "{flags}");
    }
    place.write("steps.toml", "trace-steps = 2\n");
    place.refused(&format!("{RUN} steps.toml --steps 2 --run runs/r"), 2, &["steps.toml:1: trace-steps: "]);
    std::fs::remove_file(place.path("steps.toml")).expect("it can go");
    let names: Vec<_> = std::fs::read_dir(place.path("")).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert!(
        names
            .iter()
            .all(|name| { ["m", "t.txt", "file", "pipe", "link", "runs"].contains(&name.to_str().expect("text")) }),
        "{names:?}"
    );
    place.ok(&format!("{RUN} --steps 2 --run runs/r"));
    for (run, found) in [
        ("file", "file: --run: expected a new folder, found a file"),
        ("file/r", "file/r: --run: expected a new folder, found a file at file"),
        ("pipe", "found a pipe"),
        ("link", "found a link that leads nowhere"),
        ("m", "found a folder with other files; name a new folder"),
    ] {
        place.refused(&format!("{RUN} --steps 2 --run {run}"), 2, &[found]);
    }
    place.refused("resume runs/r --trace-steps 2", 2, &["--trace <FILE>"]);
    place.refused("report runs/r --out m", 2, &["m: --out: expected a file, found a folder"]);
    place.refused("report runs/r --out none/r.html", 2, &["none/r.html: --out: ", "found no such folder above it"]);
    assert!(!place.path("m.new").exists());
    place.refused("train --model t.txt --data t.txt", 2, &["found a file"]);
}

/// Whichever file it is, what cannot be read is bad input; a pipe that nobody writes to is not waited for.
#[test]
fn files_that_cannot_be_read_are_refused_alike() {
    let place = place();
    rustix::fs::mkfifoat(rustix::fs::CWD, place.path("pipe"), 0o600.into()).expect("a pipe");
    let model = |name: &str, file: &str| {
        copy(&place.path("m"), &place.path(name));
        let path = place.path(name).join(file);
        _ = std::fs::remove_file(&path);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).expect("a pipe");
    };
    model("no-config", "config.json");
    model("no-tokenizer", "tokenizer.json");
    model("no-weights", "model.safetensors");
    std::fs::create_dir(place.path("folder")).expect("a folder");
    Small::m0(1).write_config(&place.path("c"));
    for (words, found) in [
        (format!("{RUN} --profile none.json --run r"), "none.json: --profile: expected a machine's profile"),
        (format!("{RUN} --profile pipe --run r"), "found a pipe"),
        (
            format!("{RUN} --profile folder --run r"),
            "folder: --profile: expected a machine's profile, or auto or assumed, found a folder",
        ),
        ("plan --profile pipe".to_owned(), "found a pipe"),
        ("ls none".to_owned(), "none: folder: expected a folder with runs, found no such folder"),
        ("train none.toml".to_owned(), "none.toml: file: expected a TOML file, found no such file"),
        ("train pipe".to_owned(), "found a pipe"),
        (
            "train --model m --data none.txt --run r".to_owned(),
            "none.txt: --data: expected a text file, found no such file",
        ),
        ("plan --model c --data none.txt".to_owned(), "none.txt: --data: expected a text file, found no such file"),
        ("plan --model c --data folder".to_owned(), "folder: --data: expected a text file, found a folder"),
        (
            "plan --store folder --store folder".to_owned(),
            "folder: --store: expected a folder for pages, found the same folder twice",
        ),
        ("plan --store t.txt".to_owned(), "t.txt: --store: expected a folder for pages, found a file"),
        (
            "train --model pipe --data t.txt".to_owned(),
            "pipe: --model: expected a model folder, with config.json, found a pipe",
        ),
        ("resume pipe".to_owned(), "pipe: run: expected the folder of a run, with settings.toml, found a pipe"),
        ("train --model m --data pipe --run r".to_owned(), "found a pipe"),
        (run_with("--model", "no-config"), "config.json: file: expected a model's configuration, found a pipe"),
        (run_with("--model", "no-tokenizer"), "tokenizer.json: file: expected a tokenizer's file, found a pipe"),
        (run_with("--model", "no-weights"), "model.safetensors: file: expected safetensors, found a pipe"),
    ] {
        place.refused(&words, 2, &[found]);
    }
    assert!(!place.path("r").exists() && !place.path("runs").exists());
}

#[test]
fn nobody_needs_to_read_what_is_printed() {
    let place = place();
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        Stdio::from(writer)
    };
    let deaf = |words: &str| {
        let mut command = place.command(words);
        command.stdout(closed()).stderr(closed()).spawn().expect("the program starts")
    };
    let code = |words: &str| deaf(words).wait().expect("it ends").code();
    let mut child = deaf(&format!("{RUN} --steps 100000 --checkpoint-every 1000 --run r"));
    wait_for_step(&place, "r");
    signal(&child, Signal::INT);
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let steps = place.metrics("r").len();
    assert!(place.ok("verify r").out.contains(&format!("after step {steps}:")), "the stop committed");
    for words in
        ["inspect r", "inspect r --json", "ls .", "verify r", "export r --out o", "train --print-config", "--help"]
    {
        assert_eq!(code(words), Some(0), "{words}");
    }
    assert_eq!(code("resume none"), Some(2));
    assert_eq!(code("rm r --yes"), Some(0));
    assert!(!place.path("r").exists());
}

/// Whether the tests run under nohup, as their children then do too.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("this process has a status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("with its ignored signals");
    let is_ignored = u64::from_str_radix(mask.trim(), 16).expect("a mask") & 1 == 1;
    if is_ignored {
        eprintln!("skipped: a closed terminal, since SIGHUP is ignored here");
    }
    is_ignored
}

#[test]
fn a_signal_is_answered_at_once_and_a_closed_terminal_stops_as_well() {
    let place = place();
    let child = piped(place.command(&format!("{RUN} --steps 100000 --run r")));
    wait_for_step(&place, "r");
    signal(&child, if is_hangup_ignored() { Signal::TERM } else { Signal::HUP });
    let done = ended(child);
    assert_eq!(done.code, Some(130), "{done}");
    assert!(done.err.contains("stopping after this step") && done.out.ends_with("resume: mt resume r\n"), "{done}");

    let child = piped(place.command(&format!("{RUN} --steps 100000 --run n --durability none --export out")));
    wait_for_step(&place, "n");
    signal(&child, Signal::TERM);
    let done = ended(child);
    assert_eq!(done.code, Some(130), "{done}");
    assert!(done.out.contains("cannot be resumed") && !done.out.contains("mt resume"), "{done}");
    assert!(place.path("out/model.safetensors").exists());
}

#[test]
fn a_store_stays_with_its_run() {
    let place = place();
    let store = place.path("s").display().to_string();
    place.run(&format!("{RUN} --steps 4 --stop-at 2 --run r --store s"));
    // A copy of the folder has the run's id, but not its store.
    copy(&place.path("r"), &place.path("copy"));
    place.refused("resume copy", 2, &["a copy of", &place.path("r").display().to_string()]);
    assert_eq!(place.weights("copy").bits(), place.weights("r").bits(), "reading harms nobody");
    let removed = place.ok("rm copy --yes");
    assert!(removed.out.contains("whose store stays") && removed.out.contains(&store), "{removed}");
    assert!(!place.path("copy").exists());
    // A folder that never had a store has not this one either.
    copy(&place.path("r"), &place.path("other"));
    std::fs::remove_file(place.path("other/run.json")).expect("there is a record");
    for words in ["resume other", "rm other --yes", "verify other", "inspect other"] {
        place.refused(words, 2, &[&store, "run.json"]);
    }
    assert!(place.path("other/settings.toml").exists());
    // A folder that moved has.
    std::fs::rename(place.path("r"), place.path("moved")).expect("it can be moved");
    place.ok("resume moved");
    assert_eq!(place.metrics("moved").len(), 4);
    place.ok("rm moved --yes");
    assert!(!place.path("s").exists());
}

#[test]
fn a_refused_resume_changes_nothing() {
    let place = place();
    place.run(&format!("{RUN} --steps 6 --stop-at 2 --lr-schedule constant --run r"));
    let kept = || (place.read("r/settings.toml"), place.read("r/run.json"));
    let before = kept();
    place.refused("resume r --ram 1MiB --threads 1", 3, &["--ram"]);
    place.refused("resume r --steps 9 --export m", 2, &["export folder"]);
    place.refused("resume r --steps 1 --threads 1", 2, &["at least 2"]);
    assert_eq!(kept(), before);
    // Nor one of a run without a commit.
    std::fs::remove_dir_all(place.path("r/store")).expect("there is a store");
    std::fs::remove_file(place.path("r/run.json")).expect("there is a record");
    std::fs::remove_file(place.path("r/metrics.jsonl")).expect("there are metrics");
    place.refused("resume r --ram 1MiB", 3, &["--ram"]);
    assert_eq!(place.read("r/settings.toml"), before.0);
    place.ok("resume r");
    assert_eq!(place.metrics("r").len(), 6);
}

#[test]
fn refusals_end_with_what_works() {
    let place = place();
    place.run(&format!("{RUN} --steps 4 --stop-at 2 --run runs/a-b --store s"));
    let refused =
        place.refused(&format!("{} --run x", run_with("--seq-len", "600")), 2, &["command line: --seq-len", "512"]);
    let words = refused.err.split("run: mt ").nth(1).expect("a command").trim().to_owned();
    place.ok(&format!("{words} --steps 1"));
    place.write("c.toml", "model = \"m\"\ndata = \"t.txt\"\nseq-len = 600\n");
    place.refused("train c.toml", 2, &["c.toml:3", "run: mt train c.toml --profile assumed --seq-len 512"]);
    place.refused("train --data t.txt t.txt", 2, &["--data t.txt", ".toml"]);
    place.refused(&run_with("--batch", "-1"), 2, &["--batch", "from 1 to"]);
    // The store is looked for where the run knows it, however often it was not there.
    let (old, wrong) = (place.path("s").display().to_string(), place.path("wrong").display().to_string());
    let refused = place.refused(&format!("resume runs/a-b --store {old}={wrong}"), 2, &[]);
    assert!(refused.err.trim_end().ends_with(&format!("mt resume runs/a-b --store {old}=NEW")), "{refused}");
    std::fs::rename(place.path("s"), place.path("s2")).expect("it can be moved");
    assert!(place.ok("inspect runs/a-b").out.contains("no store"), "a commit that is gone is not one that never was");
    place.ok(&format!("resume runs/a-b --store {old}={}", place.path("s2").display()));
    std::fs::remove_file(place.path("runs/a-b/model/config.json")).expect("there is one");
    for words in ["verify runs/a-b", "export runs/a-b --out o", "resume runs/a-b"] {
        let refused = place.refused(words, 2, &["model/config.json", &place.path("m").display().to_string()]);
        assert!(!refused.err.contains("mt resume"), "{refused}");
    }
    place.write("runs/a-b/settings.toml", "batch = ?");
    assert!(place.ok("ls").out.contains("does not read"), "the list has it");
}

#[test]
fn looking_at_a_run_is_in_nobodys_way() {
    let place = place();
    let mut child = place.start(&format!("{RUN} --steps 100000 --checkpoint-every 1 --run r"));
    wait_for_step(&place, "r");
    let pid = child.id().to_string();
    for _ in 0..20 {
        let looked: Value = serde_json::from_str(place.ok("inspect r --json").out.trim()).expect("JSON");
        assert!(looked["state"].as_str().is_some_and(|state| state.contains(&pid)), "{looked}");
        assert!(looked["note"]["step"].is_u64(), "{looked}");
    }
    place.refused("verify r", 2, &[&pid]);
    let kept = place.refused("rm r --yes", 2, &["in use by process", &pid]);
    assert!(kept.out.is_empty(), "nothing is announced that is not done: {kept}");
    child.kill().expect("a child of ours");
    child.wait().expect("it ends");
    assert!(place.ok("ls .").out.contains("can be resumed"));
}

#[test]
fn a_run_that_cannot_be_written_can_be_read() {
    let place = place();
    place.ok(&format!("{RUN} --steps 2 --run r"));
    std::fs::create_dir(place.path("w")).expect("a folder can be made");
    let mode = |path: &Path, bits| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).expect("the owner may");
    };
    mode(&place.path(""), 0o755);
    mode(&place.path("w"), 0o777);
    let folders = ["r", "r/store", "r/model"].map(|name| place.path(name));
    let set = |folder: u32, file: u32| {
        for path in &folders {
            for entry in std::fs::read_dir(path).expect("a folder").flatten().filter(|entry| entry.path().is_file()) {
                mode(&entry.path(), file);
            }
            mode(path, folder);
        }
    };
    set(0o555, 0o444);
    for words in ["verify r", "inspect r", "export r --out w/o"] {
        let mut command = place.command(words);
        // Root may write everywhere.
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        let done = finish(command);
        assert_eq!(done.code, Some(0), "{done}");
    }
    set(0o755, 0o644);
}

/// A command that ends for want of a thread says so, and leaves things as they were.
fn says_that_a_thread_is_missing(done: &Finished) {
    assert!(matches!(done.code, Some(2..=4)), "{done}");
    let is_said = done.err.contains("Resource temporarily unavailable") || done.err.contains("thread");
    assert!(is_said && !done.err.contains("panicked") && !done.err.contains("io_uring"), "{done}");
}

#[test]
fn no_thread_at_all_is_a_refusal_that_says_so() {
    let place = place();
    place.run(&format!("{RUN} --steps 4 --stop-at 2 --run r"));
    let (losses, weights) = (place.losses("r"), place.weights("r"));
    for words in [&format!("{RUN} --steps 2 --profile assumed --run q"), "resume r", "verify r", "export r --out o"] {
        says_that_a_thread_is_missing(&finish(place.wrapped(&[RESTRICTED, "threads"], words)));
        assert!(!place.path("q").exists() && !place.path("o").exists(), "{words}");
        assert_eq!(place.losses("r"), losses, "{words}");
    }
    assert_eq!(place.weights("r").bits(), weights.bits());
    assert_eq!(finish(place.wrapped(&[RESTRICTED, "threads"], "inspect r")).code, Some(0), "it needs none");
    place.ok("resume r");
}

/// The limit is reached at each of the threads in turn: that of signals, those that compute, the engine's.
#[test]
fn a_thread_that_does_not_start_is_a_refusal_that_says_so() {
    if !rustix::process::geteuid().is_root() {
        mt_tests::skipped("threads that do not start", "only root can have a user without other processes");
        return;
    }
    let place = place();
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.path(""), everybody).expect("the folder is ours");
    // Nobody else's user, so that its processes are those of the command.
    let user = 1_000_000 + std::process::id();
    let words = format!("{RUN} --steps 2 --profile assumed --io pool --run r");
    let mut refused = 0;
    for processes in 1.. {
        let mut command = place.wrapped(&[RESTRICTED, &format!("processes={processes}")], &words);
        command.uid(user).gid(user);
        let done = finish(command);
        if done.code == Some(0) {
            break;
        }
        says_that_a_thread_is_missing(&done);
        assert!(!place.path("r").exists(), "{processes} processes: {done}");
        refused += 1;
        assert!(refused < 100, "a run takes fewer threads: {done}");
    }
    assert!(refused >= 4, "signals, two that compute and the engine's, but only {refused} were refused");
}

#[test]
fn json_says_what_became_durable_and_how_it_ended() {
    let place = place();
    let done = place.ok(&format!("{RUN} --steps 4 --checkpoint-every 2 --run r --json"));
    let told: Vec<u64> =
        events(&done).iter().filter(|e| e["event"] == "committed").filter_map(|e| e["step"].as_u64()).collect();
    // The newest at each step's end: that of step 2 is passed over where the next is durable before it is looked at.
    assert!(matches!(told[..], [0, 2, 4] | [0, 4]), "{told:?}");
    let peaks: Vec<u64> = place.metrics("r").iter().map(|m| m["peak_ram_bytes"].as_u64().expect("bytes")).collect();
    assert!(peaks.is_sorted(), "{peaks:?}");
    let config = events(&place.ok("train --batch 3 --print-config --json")).remove(0);
    assert_eq!((&config["batch"]["value"], &config["batch"]["origin"]), (&"3".into(), &"flag".into()));
    place.write("c.toml", "json = true\n");
    for (words, code) in [
        (format!("{RUN} --run r --json"), 2),
        ("train c.toml --ram 1MiB --run x".to_owned(), 3),
        ("verify none --json".to_owned(), 2),
        (format!("{} --steps 9 --max-grad-norm off --run n --json", run_with("--lr", "1e38")), 5),
    ] {
        let done = place.refused(&words, code, &[]);
        let last = events(&done).pop().unwrap_or_else(|| panic!("{done}"));
        assert_eq!((&last["event"], last["code"].as_i64()), (&"failed".into(), Some(code.into())), "{done}");
        assert!(done.err.contains(last["message"].as_str().expect("text")), "{done}");
    }
}

#[test]
fn a_numeric_stop_names_the_commit_that_stands() {
    let place = place();
    for (flags, run) in [("--max-grad-norm off", "backward"), ("", "forward")] {
        let words = format!("{} --steps 9 --checkpoint-every 1 {flags} --run {run}", run_with("--lr", "1e38"));
        let done = place.refused(&words, 5, &["the commit of step", "stands"]);
        let step =
            done.err.split("the commit of step ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a step");
        assert!(place.ok(&format!("verify {run}")).out.contains(&format!("after step {step}:")), "{done}");
    }
}

#[test]
fn a_budget_holds_with_many_threads() {
    let place = place();
    let wide = serde_json::json!({"hidden_size": 384, "intermediate_size": 1024, "num_attention_heads": 6});
    place.model("wide", &Small::with(2, wide));
    let words = "train --model wide --data t.txt --seq-len 256 --batch 4 --steps 3 --threads 8 --run";
    let refused = place.refused(&format!("{words} x --ram 1MiB"), 3, &["--ram"]);
    let least = refused.err.trim().rsplit("--ram ").find_map(|rest| rest.split("MiB").next()?.parse::<u64>().ok());
    let least = least.unwrap_or_else(|| panic!("{refused}"));
    place.ok(&format!("{words} r --ram {least}MiB"));
    let peak = place.metrics("r").iter().filter_map(|m| m["peak_ram_bytes"].as_u64()).max().expect("bytes");
    assert!(peak <= least << 20, "{peak} bytes of {least} MiB");
}
