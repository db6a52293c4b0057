//! What it costs that every step commits, where all pages live on disk: the same run with a commit at every step and
//! with none, in turns, each a process of its own; medians of the steps.
//!
//! `cargo bench -p mt-benches --bench commit [PAIRS]` (default 5 pairs; about half a minute each on an NVMe drive). The
//! stores lie in the build folder; `MT_BENCH_DIR=DIR` puts them elsewhere.
//!
//! Passed: a step takes at most 3% longer, and at most two measured syncs plus 20 ms.

use mt_tools::peer::{Ratio, median};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// First word of the command line of a process that is to be `mt`.
const AS_MT: &str = "as-mt";
/// Steps of a run, and of them those that are left out: the first reads what later ones find prefetched, and the first
/// writes to each of a page's two extents make the file system note that they are written.
const STEPS: usize = 12;
const WARM_UP: usize = 3;
/// Steps between commits where there is to be none.
const NEVER: usize = 1_000_000;
/// Of a step.
const SHARE_MAX: f64 = 0.03;
/// Beside two syncs.
const SLACK_SECONDS: f64 = 0.02;

fn main() -> ExitCode {
    let started = Instant::now();
    let mut words = std::env::args_os().peekable();
    let program = words.next().expect("a program has a name");
    if words.peek().is_some_and(|word| word == AS_MT) {
        words.next();
        return mt_tools::main(started, std::iter::once(program).chain(words));
    }
    let pairs = words.filter_map(|word| word.to_str()?.parse().ok()).next().unwrap_or(9);
    let dir = std::env::var_os("MT_BENCH_DIR").unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    let folder = tempfile::tempdir_in(dir).expect("a folder on the disk to be measured");
    match compare(folder.path(), pairs) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs the pairs and prints what they took.
fn compare(folder: &Path, pairs: usize) -> bool {
    write_job(folder);
    let ram = smallest_ram(folder);
    println!("{}, --ram {ram}, {pairs} pairs of {} measured steps", folder.display(), STEPS - WARM_UP);
    let (mut steps, mut syncs) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // Each is the first as often as the other.
        let seconds = |every: usize| median(&mut run(folder, &ram, every));
        let (without, with) = if pair % 2 == 0 {
            (seconds(NEVER), seconds(1))
        } else {
            let with = seconds(1);
            (seconds(NEVER), with)
        };
        let sync = sync_seconds(folder);
        println!("pair {}: step {without:.3} s without commits, {with:.3} s with; sync {:.1} ms", pair + 1, sync * 1e3);
        steps.push((with, without));
        syncs.push(sync);
    }
    judge(&steps, median(&mut syncs))
}

/// Says what the pairs of steps, with commits and without, show. Whether the limits are kept.
fn judge(steps: &[(f64, f64)], sync: f64) -> bool {
    let ratio = Ratio::of(steps);
    let mut without: Vec<f64> = steps.iter().map(|(_, without)| *without).collect();
    let step = median(&mut without);
    let cost = |ratio: f64| (ratio - 1.0) * step;
    let limit = (SHARE_MAX * step).min(2.0 * sync + SLACK_SECONDS);
    let verdict = match () {
        () if cost(ratio.high) <= limit => "passed",
        () if cost(ratio.low) > limit => "failed",
        () => "inconclusive",
    };
    println!(
        "a commit at every step costs {:.1} ms of {step:.3} s: {:.2}% ({:.2}% to {:.2}%; median of {} pairs)",
        cost(ratio.median) * 1e3,
        100.0 * (ratio.median - 1.0),
        100.0 * (ratio.low - 1.0),
        100.0 * (ratio.high - 1.0),
        ratio.pairs,
    );
    println!(
        "{verdict}: at most {:.0}% ({:.1} ms) and at most two syncs plus 20 ms ({:.1} ms)",
        100.0 * SHARE_MAX,
        1e3 * SHARE_MAX * step,
        1e3 * (2.0 * sync + SLACK_SECONDS)
    );
    verdict == "passed"
}

/// A model of 61 million elements with random weights, and text.
fn write_job(folder: &Path) {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 768,
        "intermediate_size": 2048, "num_hidden_layers": 7, "num_attention_heads": 12, "num_key_value_heads": 4,
        "vocab_size": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512,
        "tie_word_embeddings": false, "initializer_range": 0.02, "torch_dtype": "float32",
    });
    std::fs::create_dir(folder.join("model")).expect("a folder");
    std::fs::write(folder.join("model/config.json"), config.to_string()).expect("the configuration");
    std::fs::write(folder.join("text"), "seven birds turn home while the cold river runs. ".repeat(400)).expect("text");
}

fn mt(folder: &Path, words: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a path"));
    command.arg(AS_MT).args(words.split_whitespace()).current_dir(folder);
    command
}

fn train(ram: &str, every: usize) -> String {
    format!(
        "train --model model --data text --seq-len 64 --batch 1 --steps {STEPS} --ram {ram} --checkpoint-every {every} \
         --run run --json --profile assumed"
    )
}

/// The smallest budget, from the refusal of a smaller one: so little RAM that next to nothing stays in it.
fn smallest_ram(folder: &Path) -> String {
    let output = mt(folder, &train("1MiB", 1)).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let ram = text.split("--ram ").nth(1).and_then(|rest| rest.split_whitespace().next());
    ram.unwrap_or_else(|| panic!("no budget in the refusal: {text}")).to_owned()
}

/// Seconds of the measured steps of one run.
fn run(folder: &Path, ram: &str, every: usize) -> Vec<f64> {
    let output = mt(folder, &train(ram, every)).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let events = String::from_utf8(output.stdout).expect("text");
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let number = |event: &Value, key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key} in {event}"));
    let share = number(&events[0], "placed_bytes") / number(&events[0], "state_bytes");
    assert!(share < 0.01, "{share} of the state stays in RAM");
    std::fs::remove_dir_all(folder.join("run")).expect("the run can be deleted");
    let steps = events.iter().filter(|event| event["event"] == "step");
    steps.skip(WARM_UP).map(|event| number(event, "seconds")).collect()
}

/// Seconds of a sync after 64 MiB of direct writes, as a commit has it: median of nine.
fn sync_seconds(folder: &Path) -> f64 {
    const BYTES: usize = 1 << 20;
    let path = folder.join("sync");
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).custom_flags(OFlags::DIRECT.bits() as i32);
    let file = options.open(&path).expect("a file with direct I/O");
    fallocate(&file, FallocateFlags::empty(), 0, 64 * BYTES as u64).expect("space");
    let block = vec![0x5a_u8; BYTES + 4096];
    let start = block.as_ptr().align_offset(4096);
    let seconds = || {
        for index in 0..64 {
            file.write_all_at(&block[start..start + BYTES], (index * BYTES) as u64).expect("a write");
        }
        let begin = Instant::now();
        file.sync_data().expect("a sync");
        begin.elapsed().as_secs_f64()
    };
    // The first turns reserved blocks into written ones, which later syncs do not have to do.
    let mut all: Vec<f64> = std::iter::repeat_with(seconds).skip(1).take(9).collect();
    std::fs::remove_file(&path).expect("the file can be deleted");
    median(&mut all)
}
