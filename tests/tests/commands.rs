//! The command from outside: flags, file, refusals with their exit codes, metrics, stopping and resuming, export,
//! verify, ls, inspect, rm. Real processes on a small model.

use mt_tests::command::{Place, byte_batch, finish};
use mt_tests::forward::Reference;
use mt_tests::small::{self, Small};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
const WITHOUT_SOCKETS: [&str; 2] = [env!("CARGO_BIN_EXE_restricted"), "sockets"];

/// A folder with M0 in `m`, without a tokenizer (bytes are ids), and 20,000 bytes of text in `t.txt`.
fn place() -> Place {
    let place = Place::new(MT);
    place.model("m", &Small::m0(1));
    place.write("t.txt", small::text(1, 20_000));
    place
}

/// Flags of a short run on `place`.
const RUN: &str = "train --model m --data t.txt --seq-len 32 --batch 4 --lr 1e-3 --warmup 2 --threads 2 --no-shuffle";

#[test]
fn help_and_version_are_printed() {
    let place = Place::new(MT);
    for words in
        ["--help", "train --help", "resume --help", "export --help", "verify --help", "inspect --help", "ls --help"]
    {
        let help = place.ok(words);
        assert!(help.out.contains("Usage:"), "{help}");
    }
    let help = place.ok("train --help").out;
    let flags = [
        "--model",
        "--data",
        "--run",
        "--store",
        "--direct-io",
        "--io",
        "--ram",
        "--steps",
        "--epochs",
        "--stop-at",
        "--batch",
        "--micro-batch",
        "--seq-len",
        "--lr",
        "--lr-schedule",
        "--warmup",
        "--min-lr-ratio",
        "--max-grad-norm",
        "--weight-decay",
        "--betas",
        "--eps",
        "--seed",
        "--threads",
        "--no-shuffle",
        "--recompute",
        "--checkpoint-every",
        "--durability",
        "--no-nan-guard",
        "--export",
        "--discard",
        "--page",
        "--json",
    ];
    for flag in flags {
        assert!(help.contains(flag), "mt train --help does not mention {flag}");
    }
    assert!(place.ok("--version").out.contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn bad_flags_and_values_are_refused_with_code_2() {
    let place = place();
    place.refused("train --max-grad-norm 0", 2, &["max-grad-norm", "use off"]);
    place.refused("train --model m", 2, &["--data"]);
    place.refused("train --sede 3", 2, &["--seed"]);
    place.refused("train --durability none", 2, &["--export", "--discard"]);
    place.refused("train --page 3000", 2, &["--page"]);
    place.refused(&format!("{RUN} --micro-batch 5"), 2, &["micro-batch"]);
    place.refused("train --model none --data t.txt", 2, &["none"]);
    place.refused("train --model m --data none.txt", 2, &["none.txt"]);
    place.refused("resume none", 2, &["none"]);
    place.refused("export none --out o", 2, &["none"]);
    place.refused("verify none", 2, &["none"]);
    assert!(!place.path("runs").exists(), "a refusal leaves nothing behind");
}

#[test]
fn the_file_says_what_the_flags_can_and_flags_win() {
    let place = place();
    let text = "model = \"m\"\ndata = [\"t.txt\"]\nseq-len = 32\nbatch = 2\n\
                lr = 1e-3\nseed = 7\nbetas = [0.8, 0.9]\nno-shuffle = true\n";
    place.write("c.toml", text);
    let shown = place.ok("train c.toml --batch 3 --print-config").out;
    let line = |name: &str| {
        let found = shown.lines().find(|l| l.split('=').next().is_some_and(|n| n.trim() == name));
        found.unwrap_or_else(|| panic!("no line for {name} in\n{shown}")).to_owned()
    };
    assert!(line("batch").contains('3') && line("batch").contains("flag"), "{shown}");
    assert!(line("seed").contains('7') && line("seed").contains("c.toml"), "{shown}");
    assert!(line("eps").contains("default"), "{shown}");
    assert!(!place.path("runs").exists(), "--print-config starts nothing");
    place.write("bad.toml", "batsh = 3\n");
    place.refused("train bad.toml", 2, &["batsh", "batch", "bad.toml"]);
    place.write("type.toml", "batch = \"many\"\n");
    place.refused("train type.toml", 2, &["batch", "type.toml"]);
    place.ok("train c.toml --steps 2 --run a");
    place.ok("train --model m --data t.txt --seq-len 32 --batch 2 --lr 1e-3 --seed 7 --betas 0.8,0.9 \
              --no-shuffle --steps 2 --run b");
    assert_eq!(place.losses("a"), place.losses("b"));
}

#[test]
fn a_run_reports_each_step_and_the_loss_is_right() {
    let place = place();
    place.ok(&format!("{RUN} --steps 4 --run r"));
    let lines = place.metrics("r");
    assert_eq!(lines.len(), 4);
    for (i, line) in lines.iter().enumerate() {
        let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("{key} in {line}"));
        assert_eq!(number("step"), (i + 1) as f64);
        assert_eq!(number("tokens"), 128.0);
        for key in ["loss", "grad_norm", "lr", "seconds", "peak_ram_bytes"] {
            assert!(number(key) > 0.0, "{key} in {line}");
        }
        for key in ["disk_read_bytes", "disk_write_bytes"] {
            assert!(number(key) >= 0.0, "{key} in {line}");
        }
        assert_eq!(line.get("time_to_first_step").is_some(), i == 0, "{line}");
    }
    let model = Small::m0(1);
    let text = std::fs::read(place.path("t.txt")).expect("the text");
    let expected = Reference::new(&model.config, &model.tensors).loss(&byte_batch(&text, 0, 4, 32));
    let error = (place.losses("r")[0] / expected - 1.0).abs();
    assert!(error < 1e-5, "the first loss is off by {error:e}");
    assert!(place.path("r/store").is_dir(), "pages live in the run's folder");
}

#[test]
fn runs_get_new_folders_and_an_existing_one_is_refused() {
    let place = place();
    place.ok(&format!("{RUN} --steps 1"));
    place.ok(&format!("{RUN} --steps 1"));
    let mut names: Vec<_> =
        std::fs::read_dir(place.path("runs")).expect("runs").flatten().map(|e| e.file_name()).collect();
    names.sort();
    assert_eq!(names, ["m-1", "m-2"]);
    place.refused(&format!("{RUN} --steps 1 --run runs/m-1"), 2, &["mt resume", "runs/m-1"]);
    let listed = place.ok("ls").out;
    assert!(listed.contains("m-1") && listed.contains("m-2"), "{listed}");
}

#[test]
fn what_does_not_fit_is_refused_with_a_command_that_works() {
    let place = place();
    let refused = place.refused(&format!("{RUN} --steps 1 --ram 1MiB --run r"), 3, &["--ram"]);
    assert!(!place.path("r/metrics.jsonl").exists(), "{refused}");
    let line = refused.err.lines().rfind(|l| l.contains("mt train")).unwrap_or_else(|| panic!("{refused}"));
    let words = line[line.find("mt train").expect("just found") + 3..].trim_end_matches(['`', '.', '"']).to_owned();
    place.ok(&words);
}

#[test]
fn a_stopped_run_resumes_to_the_same_bits() {
    let place = place();
    place.ok(&format!("{RUN} --steps 7 --run whole"));
    let stopped = place.run(&format!("{RUN} --steps 7 --stop-at 3 --run part"));
    assert!(matches!(stopped.code, Some(0 | 130)), "{stopped}");
    assert_eq!(place.metrics("part").len(), 3);
    place.ok("verify part");
    place.ok("resume part --threads 1");
    assert_eq!(place.losses("part"), place.losses("whole"));
    assert_eq!(place.weights("part").bits(), place.weights("whole").bits());
    let again = place.ok("resume part");
    assert!(again.out.contains("finished") || again.err.contains("finished"), "{again}");
    assert_eq!(place.losses("part"), place.losses("whole"));
}

#[test]
fn a_signal_stops_at_a_step_and_the_run_resumes_to_the_same_bits() {
    let place = place();
    place.ok(&format!("{RUN} --steps 300 --run whole"));
    for (run, signal) in [("int", Signal::INT), ("term", Signal::TERM)] {
        let mut child = place.start(&format!("{RUN} --steps 300 --run {run}"));
        let started = Instant::now();
        while place.metrics(run).len() < 3 && started.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(2));
        }
        kill_process(Pid::from_child(&child), signal).expect("the child runs");
        let status = child.wait().expect("the child ends");
        assert_eq!(status.code(), Some(130), "stopped and resumable");
        let done = place.metrics(run).len();
        assert!((3..300).contains(&done), "{done} steps");
        place.ok(&format!("resume {run}"));
        assert_eq!(place.losses(run), place.losses("whole"));
        assert_eq!(place.weights(run).bits(), place.weights("whole").bits());
    }
}

#[test]
fn another_total_is_refused_where_it_changes_the_rates() {
    let place = place();
    place.run(&format!("{RUN} --steps 6 --stop-at 2 --run cosine"));
    place.refused("resume cosine --steps 9", 2, &["--allow-change steps"]);
    place.ok("resume cosine --steps 9 --allow-change steps");
    assert_eq!(place.metrics("cosine").len(), 9);
    place.run(&format!("{RUN} --steps 6 --stop-at 2 --lr-schedule constant --run flat"));
    place.ok("resume flat --steps 4");
    assert_eq!(place.metrics("flat").len(), 4);
}

#[test]
fn an_accepted_total_stays_accepted_before_a_commit_holds_it() {
    let place = place();
    place.run(&format!("{RUN} --steps 6 --stop-at 2 --run r"));
    // Stops before its first step, so without a commit.
    place.run("resume r --steps 9 --allow-change steps --stop-at 2");
    place.refused("resume r --steps 12", 2, &["--allow-change steps"]);
    place.run("resume r --steps 6 --stop-at 2");
    place.refused("resume r --steps 9", 2, &["--allow-change steps"]);
    place.run("resume r --steps 9 --allow-change steps --stop-at 2");
    place.ok("resume r");
    assert_eq!(place.metrics("r").len(), 9);
}

#[test]
fn an_export_removes_what_a_killed_one_left() {
    let place = place();
    place.ok(&format!("{RUN} --steps 1 --run r"));
    let mut ended = place.start("--version");
    ended.wait().expect("the child ends");
    let dead = format!(".o.partial-{}", ended.id());
    let alive = format!(".o.partial-{}", std::process::id());
    for name in [dead.as_str(), &alive, ".other.partial-1", ".o.partial-x"] {
        place.write(&format!("{name}/model.safetensors"), "half");
    }
    let done = place.ok("export r --out o");
    assert!(done.err.contains(&dead) && !done.err.contains(&alive), "{done}");
    assert!(!place.path(&dead).exists());
    for name in [alive.as_str(), ".other.partial-1", ".o.partial-x"] {
        assert!(place.path(name).exists(), "{name} is not a dead process's");
    }
}

#[test]
fn rates_follow_the_documented_table() {
    let place = place();
    place.ok("train --model m --data t.txt --seq-len 32 --batch 3 --micro-batch 1 --steps 20 --lr 1 --warmup 4 \
         --min-lr-ratio 0.1 --max-grad-norm 1e-6 --weight-decay 0 --eps 1 --run r");
    let rates: Vec<f64> = place.metrics("r").iter().map(|m| m["lr"].as_f64().expect("lr")).collect();
    let table =
        [(1, 0.25), (2, 0.5), (4, 1.0), (5, 0.9914), (8, 0.8682), (12, 0.55), (16, 0.2318), (19, 0.1086), (20, 0.1)];
    for (step, rate) in table {
        assert!((rates[step - 1] - rate).abs() < 5e-5, "step {step}: {} instead of {rate}", rates[step - 1]);
    }
}

#[test]
fn epochs_end_a_run_and_steps_take_rows_across_their_ends() {
    let place = place();
    place.write("ten.txt", small::text(2, 10 * 32 + 5).as_bytes().split_at(10 * 32 + 5).0);
    let words = "train --model m --data ten.txt --seq-len 32 --batch 4 --no-shuffle --lr 0 --warmup 0";
    place.ok(&format!("{words} --epochs 2 --run two"));
    assert_eq!(place.metrics("two").len(), 5, "20 rows in steps of 4");
    place.ok(&format!("{words} --epochs 2 --steps 3 --run three"));
    assert_eq!(place.metrics("three").len(), 3, "the first reached ends the run");
    let model = Small::m0(1);
    let text = std::fs::read(place.path("ten.txt")).expect("the text");
    let reference = Reference::new(&model.config, &model.tensors);
    let half = |first| reference.loss(&byte_batch(&text, first, 2, 32));
    let across = (half(8) + half(0)) / 2.0;
    assert!((place.losses("two")[2] / across - 1.0).abs() < 1e-5, "step 3 takes the last two rows and the first two");
}

#[test]
fn durability_none_needs_no_disk_and_exports_from_the_running_process() {
    let place = place();
    place.ok(&format!("{RUN} --steps 3 --run full"));
    place.ok(&format!("{RUN} --steps 3 --run none --durability none --export out"));
    assert_eq!(place.losses("none"), place.losses("full"));
    let exported = mt_tests::tensors::Tensors::read_model(&place.path("out"));
    assert_eq!(exported.bits(), place.weights("full").bits());
    place.ok(&format!("{RUN} --steps 1 --run gone --durability none --discard"));
}

#[test]
fn verify_names_a_damaged_page() {
    let place = place();
    place.ok(&format!("{RUN} --steps 2 --run r"));
    place.ok("verify r");
    let volume = place.path("r/store/volume.mt");
    let mut bytes = std::fs::read(&volume).expect("the volume can be read");
    let weights = place.weights("r");
    let first = weights.values("model.embed_tokens.weight");
    let plane: Vec<u8> =
        first[..64].iter().flat_map(|w| ((w.to_bits().wrapping_add(0x8000) >> 16) as u16).to_le_bytes()).collect();
    let at =
        bytes.windows(plane.len()).position(|w| w == plane).expect("the embedding's high halves lie in the volume");
    bytes[at + 5] ^= 0x10;
    std::fs::write(&volume, &bytes).expect("the volume can be written");
    place.refused("verify r", 4, &["hi", "page"]);
    place.refused("export r --out o", 4, &["page"]);
    assert!(
        !place.path("o/config.json").exists() || !place.path("o/model.safetensors").exists(),
        "no half of an export"
    );
}

#[test]
fn inspect_ls_and_rm_speak_of_the_run() {
    let place = place();
    place.ok(&format!("{RUN} --steps 2 --run runs/r"));
    let shown = place.ok("inspect runs/r").out;
    assert!(shown.contains('2'), "{shown}");
    let json = place.ok("inspect runs/r --json").out;
    serde_json::from_str::<serde_json::Value>(json.trim()).unwrap_or_else(|e| panic!("{json}: {e}"));
    for line in place.ok("ls --json").out.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
    let asked = place.run("rm runs/r");
    assert!(place.path("runs/r").exists(), "without an answer nothing is deleted: {asked}");
    place.write("runs/mine.txt", "keep me");
    place.write("runs/r/notes.txt", "keep me");
    place.write("runs/r/store/notes.txt", "keep me");
    let removed = place.ok("rm runs/r --yes").out;
    assert!(removed.contains("runs/r/notes.txt") && removed.contains("runs/r/store/notes.txt"), "{removed}");
    assert!(place.path("runs/r/notes.txt").exists() && place.path("runs/r/store/notes.txt").exists());
    assert!(!place.path("runs/r/settings.toml").exists() && !place.path("runs/r/store/volume.mt").exists());
    assert!(place.path("runs/mine.txt").exists(), "nothing else goes");
}

#[test]
fn json_output_is_lines_of_json() {
    let place = place();
    let done = place.ok(&format!("{RUN} --steps 2 --run r --json"));
    assert!(!done.out.trim().is_empty(), "{done}");
    for line in done.out.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
}

#[test]
fn the_main_job_runs_with_sockets_denied() {
    let place = place();
    place.model("tok", &Small::m0(1));
    small::write_tokenizer(&place.path("tok"));
    let words = "train --model tok --data t.txt --seq-len 32 --batch 4 --steps 2 --ram 32MiB --run r --export out";
    let done = finish(place.wrapped(&WITHOUT_SOCKETS, words));
    assert_eq!(done.code, Some(0), "{done}");
    let resumed = finish(place.wrapped(&WITHOUT_SOCKETS, "resume r"));
    assert_eq!(resumed.code, Some(0), "{resumed}");
}

#[test]
fn the_filter_against_sockets_bites() {
    let place = Place::new("python3");
    let Ok(found) = place.command("--version").output() else { return };
    assert!(found.status.success());
    let script = place.write("s.py", "import socket\nsocket.socket()\n");
    let done = finish(place.wrapped(&WITHOUT_SOCKETS, script.to_str().expect("a UTF-8 path")));
    assert_eq!(done.code, None, "a signal ends it: {done}");
}
