//! `mt plan` from outside: what it says, what it refuses and how, that a run refuses the same and then does what the
//! plan said; bounds on writes.

use mt_tests::command::{Finished, Place};
use mt_tests::small::{self, Small};
use mt_trainer::profile::MachineProfile;
use serde_json::Value;
use std::path::Path;

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");

/// Flags of a short run on `place`.
const RUN: &str = "--model m --data t.txt --seq-len 32 --batch 4 --lr 1e-3 --warmup 2 --threads 2 --no-shuffle";

/// A folder with M0 in `m`, its configuration alone in `c`, and 20,000 bytes of text in `t.txt`.
fn place() -> Place {
    let place = Place::new(MT);
    place.model("m", &Small::m0(1));
    Small::m0(1).write_config(&place.path("c"));
    place.write("t.txt", small::text(1, 20_000));
    place
}

fn json(place: &Place, words: &str) -> Value {
    let out = place.ok(words).out;
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{out}: {e}"))
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {value}"))
}

/// Bytes that a run's store has written over its life, as it counts them itself.
fn ledger(place: &Place, run: &str) -> u64 {
    let found = json(place, &format!("inspect {run} --json"));
    let volumes = found["volumes"].as_array().unwrap_or_else(|| panic!("{found}"));
    volumes.iter().map(|volume| number(volume, "/written_bytes")).sum()
}

#[test]
fn a_plan_needs_no_weights_and_leaves_nothing_behind() {
    let place = place();
    let text = place.ok("plan --model c --ram 64MiB").out;
    for part in ["predicted", "assumed", "forward", "backward", "update", "weights", "moments", "gradients", "what if"]
    {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    place.ok("plan --shape 8b --ram 64GiB --disk 1TiB");
    // Of a run whose length is not known, 1,000 steps are told, with all that is told of a whole one.
    let text = place.ok("plan --model c --ram 64MiB --tbw 600").out;
    assert!(text.contains("1,000 steps: ") && text.contains("% of each drive's rated life; for a whole"), "{text}");
    let plan = json(&place, "plan --model c --ram 64MiB --tbw 600 --json");
    assert!(plan["totals"].is_null() && plan["thousand"]["drive_life_percent"].as_f64() > Some(0.0), "{plan}");
    assert!(place.ok("plan --list-shapes").out.contains("120b"));
    let shapes = json(&place, "plan --list-shapes --json");
    let shapes = shapes["shapes"].as_array().expect("shapes");
    assert!(shapes.iter().any(|shape| shape["name"] == "7b" && shape["hidden"] == 4096), "{shapes:?}");
    place.refused("plan --shape 9b", 2, &["--shape", "8b"]);
    place.refused("plan --shape 8b --model m", 2, &["--model"]);
    assert!(!place.path("runs").exists() && !place.path("cache").exists(), "a plan makes nothing");
    let vast = "plan --shape 7b --batch 65536 --seq-len 32768 --profile assumed --ram 4000GiB --disk 900TiB";
    place.refused(vast, 2, &["batch", "fewer than 2^32 pages", "2147483648 tokens"]);
}

/// Fault kind E03: what does not fit is known before anything is written, for each budget and for both.
#[test]
fn what_does_not_fit_is_refused_by_plan_and_run_alike_with_a_command_that_works() {
    let place = place();
    let tight = format!("{RUN} --steps 2 --ram 1MiB --disk 100KiB --run r");
    for (command, parts) in [
        (format!("plan {tight}"), ["--ram", "--disk"]),
        (format!("train {tight}"), ["--ram", "--disk"]),
        (format!("train {RUN} --steps 2 --disk 100KiB --run r"), ["disk", "--disk"]),
    ] {
        let refused = place.refused(&command, 3, &parts);
        assert!(refused.err.contains("missing") || refused.err.contains("more than"), "{refused}");
        assert!(!place.path("r").exists(), "nothing was written: {refused}");
        let line = refused.err.lines().find(|l| l.contains("run: mt")).unwrap_or_else(|| panic!("{refused}"));
        let words = &line[line.find("run: mt ").expect("just found") + "run: mt ".len()..];
        let done = place.ok(words);
        if command.starts_with("train") {
            assert_eq!(place.metrics("r").len(), 2, "{done}");
            std::fs::remove_dir_all(place.path("r")).expect("the run goes");
        }
    }
}

#[test]
fn a_run_does_what_the_plan_said() {
    let place = place();
    place.model("b", &Small::with(1, serde_json::json!({"hidden_size": 256, "intermediate_size": 704})));
    // Room for about half of the state.
    let words = format!("{} --steps 5 --checkpoint-every 1 --page 2048", RUN.replace("--model m", "--model b"));
    let all = json(&place, &format!("plan {words} --ram 1GiB --json"));
    let (program, workspace) = (number(&all, "/limits/ram_program"), number(&all, "/limits/ram_workspace"));
    let ram = program + workspace + number(&all, "/limits/ram_pages") / 2;
    let plan = json(&place, &format!("plan {words} --ram {ram} --json"));
    assert_eq!(number(&plan, "/totals/steps"), 5);
    assert!(number(&plan, "/limits/ram_placed") < number(&all, "/limits/ram_placed"), "{plan}");
    let parts = ["forward", "loss", "backward", "update"];
    let phases = plan["step"]["phases"].as_array().expect("phases");
    assert_eq!(phases.iter().map(|p| p["phase"].as_str().expect("a name")).collect::<Vec<_>>(), parts);
    let sum: f64 = phases.iter().map(|p| p["seconds"].as_f64().expect("seconds")).sum();
    let whole = plan["step"]["seconds"].as_f64().expect("seconds");
    assert!((sum / whole - 1.0).abs() < 1e-6, "{sum} of {whole}");
    assert!(phases.iter().all(|p| p["processor_seconds"] == p["compute_seconds"]), "{plan}");

    place.ok(&format!("train {words} --ram {ram} --run r"));
    // The program's own part differs a little from process to process, and with it what is placed.
    let (read, written) = (number(&plan, "/step/disk_read_bytes"), number(&plan, "/step/disk_write_bytes"));
    let commit = number(&plan, "/step/commit_bytes");
    let lines = place.metrics("r");
    let moved = |key: &str| lines[1..4].iter().map(|l| l[key].as_u64().expect("bytes")).sum::<u64>() / 3;
    let near = |found: u64, said: u64| found.abs_diff(said) <= said / 4 + (1 << 20);
    assert!(near(moved("disk_read_bytes"), read), "{} read, {read} said", moved("disk_read_bytes"));
    let found = moved("disk_write_bytes");
    assert!(near(found, written + commit), "{found} written, {written} and {commit} said");
    // The whole run: the first step has no update before it, the last update comes behind the steps.
    let said = number(&plan, "/totals/written_bytes");
    let wrote = ledger(&place, "r");
    assert!(wrote.abs_diff(said) <= said / 20, "{wrote} written in all, {said} said");
}

#[test]
fn levels_are_counted_and_follow_the_budget() {
    let place = place();
    let kept = |words: &str| {
        let plan = json(&place, &format!("plan {RUN} --page 2048 --steps 5 --json {words}"));
        let counts = ["all", "attention", "input"].map(|level| number(&plan, &format!("/kept/{level}")));
        assert_eq!(counts.iter().sum::<u64>(), number(&plan, "/layers"), "{plan}");
        assert_eq!(plan["recompute"], Value::from(counts[0] < number(&plan, "/layers")), "{plan}");
        (counts, number(&plan, "/limits/ram_workspace"), plan["step"]["seconds"].as_f64().expect("seconds"))
    };
    let (all, roomy, fastest) = kept("--ram 1GiB");
    assert_eq!(all, kept("--ram 1GiB --recompute none").0, "what fits RAM is kept");
    let (input, least, slowest) = kept("--ram 1GiB --recompute all");
    assert_eq!((all[0], input[2]), (number(&json(&place, "plan --model c --json"), "/layers"), all[0]));
    assert!(roomy < least && fastest < slowest, "what is kept takes no workspace and no time");
}

/// A GPU is planned for without one, and not trained on.
#[test]
fn a_gpu_is_planned_for_and_must_be_there_to_run() {
    let place = place();
    let text = place.ok("plan --shape 1.5b --vram 12GiB --ram 64GiB --disk 1TiB --batch 16").out;
    for part in ["cuda:0", "bf16", "VRAM", "stays in VRAM", "link", "assumed", "twice the VRAM"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let plan =
        |words: &str| json(&place, &format!("plan --shape 1.5b --ram 64GiB --disk 1TiB --batch 16 --json {words}"));
    let (small, large) = (plan("--vram 6GiB"), plan("--vram 40GiB"));
    for key in ["/micro_batch", "/seq_len"] {
        assert_eq!(small.pointer(key), large.pointer(key), "{key} follows no budget");
    }
    for found in [&small, &large] {
        let parts =
            ["context", "workspace", "placed", "window"].map(|part| number(found, &format!("/gpu/vram_{part}")));
        assert!(parts.iter().sum::<u64>() <= number(found, "/gpu/vram"), "{found}");
        assert!(number(found, "/gpu/vram_peak") <= number(found, "/gpu/vram"), "{found}");
        assert!(number(found, "/limits/ram_peak") <= number(found, "/limits/ram"), "{found}");
        // What phases compute is the GPU's; what the processor does beside it is told apart.
        let phases = found["step"]["phases"].as_array().expect("phases");
        let computed: f64 = phases.iter().map(|p| p["compute_seconds"].as_f64().expect("seconds")).sum();
        let whole = found["gpu"]["compute_seconds"].as_f64().expect("seconds");
        assert!((computed / whole - 1.0).abs() < 0.01, "{computed} of {whole} s: {found}");
        let on_processor = phases[3]["processor_seconds"].as_f64() > Some(0.0);
        assert_eq!(on_processor, number(found, "/gpu/updates") < number(found, "/parameters"), "{found}");
        assert!(phases[..3].iter().all(|p| p["processor_seconds"] == 0.0), "{found}");
    }
    assert!(plan("--vram 12GiB --precision fp32")["step"]["seconds"].as_f64() > small["step"]["seconds"].as_f64());
    let refused = place.refused("plan --shape 1.5b --vram 1GiB --ram 64GiB --disk 1TiB --batch 16", 3, &["--vram"]);
    let line = refused.err.lines().find(|l| l.contains("run: mt")).unwrap_or_else(|| panic!("{refused}"));
    place.ok(&line[line.find("run: mt ").expect("just found") + "run: mt ".len()..]);
    // Either there is no driver, or it does not show so many.
    place.refused(&format!("train {RUN} --steps 1 --device cuda:63 --run gone"), 2, &["CUDA"]);
    assert!(!place.path("gone").exists(), "a run that had no GPU leaves nothing");
    place.write("gpu.toml", "vram = \"12GiB\"\nprecision = \"tf32\"\n");
    assert!(place.ok("plan gpu.toml --shape 1.5b --ram 64GiB --disk 1TiB").out.contains("tf32 on cuda:0"));
}

#[test]
fn without_clipping_the_faster_update_schedule_that_fits_is_planned() {
    let place = place();
    let plan = |words: &str| json(&place, &format!("plan --shape 1.5b --batch 8 --json {words}"));
    let seconds = |plan: &Value| plan["step"]["seconds"].as_f64().expect("seconds");
    let mut in_backward = 0;
    for ram in ["3GiB", "8GiB", "16GiB"] {
        let words = format!("--ram {ram} --disk 1TiB --checkpoint-every 4");
        let (clipped, free) = (plan(&words), plan(&format!("{words} --max-grad-norm off")));
        assert_eq!(clipped["update_in_backward"], false);
        // Each process plans with what it has in RAM itself, so that equal plans may differ a little.
        assert!(seconds(&free) <= 1.001 * seconds(&clipped), "{free}");
        in_backward += u64::from(free["update_in_backward"] == true);
    }
    assert!(in_backward > 0);
    // Gradients that wait for a norm take space on the drives; without one there is a way without them.
    let clipped = plan("--ram 3GiB --disk 1TiB --recompute all");
    let disk = number(&clipped, "/limits/disk") - (1 << 30);
    let words = format!("plan --shape 1.5b --batch 8 --ram 3GiB --disk {disk} --recompute all");
    place.refused(&words, 3, &["disk"]);
    let free = plan(&format!("--ram 3GiB --disk {disk} --recompute all --max-grad-norm off"));
    assert_eq!(free["update_in_backward"], true);
    // Without commits there is nothing to go back to.
    let volatile = plan("--ram 64GiB --max-grad-norm off --durability none --discard");
    assert_eq!(volatile["update_in_backward"], false);
    // On a GPU, too; and without commits where that is allowed.
    let words = "--vram 8GiB --ram 64GiB --durability none --max-grad-norm off";
    let (guarded, free) = (plan(words), plan(&format!("{words} --no-nan-guard")));
    assert_eq!((&guarded["update_in_backward"], &free["update_in_backward"]), (&false.into(), &true.into()));
    assert!(seconds(&free) < seconds(&guarded), "{free}");
}

#[test]
fn the_store_never_writes_more_than_it_may() {
    let place = place();
    let words = format!("train {RUN} --steps 40 --durability full --checkpoint-every 1");
    let refused = place.refused(&format!("{words} --max-writes 1MiB --run none"), 3, &["--max-writes"]);
    assert!(!place.path("none").exists(), "{refused}");
    place.ok(&format!("{words} --run whole"));
    let stopped = place.run(&format!("{words} --max-writes 12MiB --run part"));
    assert_eq!(stopped.code, Some(130), "{stopped}");
    assert!(stopped.err.contains("--max-writes"), "{stopped}");
    let done = place.metrics("part").len();
    assert!((1..40).contains(&done), "{done} steps");
    // A plan knows it, refuses what a run refuses, and both accept what the refusal says.
    let plan = format!("plan {RUN} --steps 40 --durability full --checkpoint-every 1 --max-writes");
    let planned = json(&place, &format!("{plan} 12MiB --json"))["totals"]["stopped_after"].as_u64();
    assert!(planned.is_some_and(|planned| (planned as usize).abs_diff(done) <= 1), "{planned:?}, {done}");
    let refused_alike = place.refused(&format!("{plan} 1MiB"), 3, &["--max-writes (import, a step and its commit)"]);
    let least = |refused: &Finished| {
        let (_, hint) = refused.err.rsplit_once("--max-writes ").unwrap_or_else(|| panic!("{refused}"));
        hint.trim().to_owned()
    };
    assert_eq!(least(&refused_alike), least(&refused));
    place.ok(&format!("{plan} {}", least(&refused)));
    assert_eq!(place.run(&format!("{words} --max-writes {} --run least", least(&refused))).code, Some(130));
    assert!(!place.metrics("least").is_empty());
    let text = place.ok(&format!("{plan} 12MiB")).out;
    assert!(text.contains("; --max-writes stops it, resumable, after about "), "{text}");
    assert!(!place.ok(&format!("{plan} 1GiB")).out.contains("--max-writes stops"));
    // The ledger is of the whole life: another process writes nothing more.
    let again = place.run("resume part");
    assert_eq!((again.code, place.metrics("part").len()), (Some(130), done), "{again}");
    place.ok("resume part --max-writes 10GiB");
    assert_eq!(place.losses("part"), place.losses("whole"));
}

#[test]
fn a_profile_from_a_file_changes_predictions_and_no_results() {
    let place = place();
    place.refused("plan --model c --profile none.json", 2, &["none.json"]);
    place.write("bad.json", "{\"version\": 9}");
    place.refused("plan --model c --profile bad.json", 2, &["bad.json", "version"]);
    let profile = MachineProfile::assumed(2);
    let mut slow = profile.clone();
    slow.compute.products.iter_mut().for_each(|point| point.operations_per_s /= 4.0);
    place.write("fast.json", profile.to_json());
    place.write("slow.json", slow.to_json());
    let seconds = |name: &str| {
        let plan = json(&place, &format!("plan {RUN} --steps 2 --ram 64MiB --json --profile {name}"));
        plan["step"]["seconds"].as_f64().expect("seconds")
    };
    assert!(seconds("slow.json") > 1.5 * seconds("fast.json"));
    for name in ["fast", "slow"] {
        place.ok(&format!("train {RUN} --steps 3 --run {name} --profile {name}.json"));
    }
    assert_eq!(place.losses("slow"), place.losses("fast"));
}

#[test]
fn a_probe_is_made_once_kept_and_changes_no_result() {
    let place = place();
    let words = format!("{RUN} --steps 2");
    let first = place.ok(&format!("train {words} --run probed --profile auto"));
    assert!(first.err.contains("probed this machine"), "{first}");
    let kept: Vec<_> = std::fs::read_dir(place.path("cache/megatrain")).expect("it is kept").flatten().collect();
    assert_eq!(kept.len(), 1);
    let second = place.ok(&format!("plan {words} --profile auto --ram 64MiB"));
    assert!(!second.err.contains("probed this machine") && second.out.contains("probed on"), "{second}");
    let resumed = place.ok("resume probed --profile auto");
    assert!(!resumed.err.contains("probed this machine"), "{resumed}");
    place.ok(&format!("train {words} --run assumed"));
    assert_eq!(place.losses("probed"), place.losses("assumed"));
    // Another model has other shapes: they alone are measured, and said.
    let other = place.ok("plan --ram 64MiB --profile auto");
    let line = other.err.lines().find(|line| line.contains("probed this machine")).unwrap_or_else(|| panic!("{other}"));
    assert!(line.contains("shapes of products up to ") && !line.contains("disk"), "{line}");

    // The saved profile of this machine wins, one of another machine and one that does not read are passed over.
    let mut saved = MachineProfile::assumed(2);
    saved.origin = mt_trainer::profile::Origin::Measured;
    for (processor, says) in [(None, "measured on"), (Some("another"), "probed on")] {
        saved.machine = mt_trainer::profile::Machine::this();
        saved.machine.processor = processor.map_or(saved.machine.processor, str::to_owned);
        place.write("config/megatrain/profile.json", saved.to_json());
        let planned = place.ok(&format!("plan {words} --profile auto --ram 64MiB"));
        assert!(planned.out.contains(says), "{planned}");
    }
    place.write("config/megatrain/profile.json", "{}");
    let planned = place.ok(&format!("plan {words} --profile auto --ram 64MiB"));
    assert!(planned.err.contains("passed over") && planned.out.contains("probed on"), "{planned}");
}

/// Without any flag it runs on every machine, whose threads take RAM of their own.
#[test]
fn the_default_run_fits_its_budget_with_any_number_of_threads() {
    let place = place();
    for threads in [1, 2, 4, 5, 8, 16, 32, 64, 128] {
        place.ok(&format!("plan --threads {threads} --store s --disk 10GiB"));
    }
    let mut profile = MachineProfile::assumed(32);
    profile.compute.threads = 32;
    place.write("large.json", profile.to_json());
    place.ok("plan --profile large.json --store s --disk 10GiB");
    assert_eq!(place.refused("plan --threads 16 --ram 64MiB --store s", 3, &["RAM"]).code, Some(3));
}

/// What else was measured is not lost with a GPU that cannot be. (Commands in tests see no GPU.)
#[test]
fn a_gpu_that_cannot_be_probed_is_told_and_the_rest_is_measured() {
    let place = place();
    let products = r#"[["forward",64,64,64,4096],["backward_input",64,64,64,4096],["backward_weight",64,64,64,4096]]"#;
    let wanted = format!(r#"{{"products":{products},"attention":[[1,64,4,2,64]]}}"#);
    let probed = |more: &str| {
        let done = place.ok(&format!("probe --threads 1 --dir . --gpu 0 --wanted {wanted} {more}"));
        assert!(done.err.contains("GPU 0 could not be probed, its rates are assumed: "), "{done}");
        MachineProfile::parse(&done.out, Path::new("probe")).expect("a profile")
    };
    let found = probed("");
    assert!(found.gpus.is_empty() && found.compute.products.len() == 3, "{found:?}");
    place.write("known.json", found.to_json());
    assert_eq!(probed("--known known.json"), found);
}

#[test]
fn without_a_place_to_keep_a_probe_the_run_goes_on() {
    let place = place();
    place.write("cache", "a file where a folder should be");
    let done = place.ok(&format!("train {RUN} --steps 1 --run r --profile auto"));
    assert!(done.err.contains("not kept") && done.err.contains("probed this machine"), "{done}");
    assert_eq!(place.metrics("r").len(), 1);
}
