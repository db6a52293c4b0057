//! Plans as text. `UPDATE=1 cargo test -p mt-tools golden` writes the files anew.

use super::*;
use crate::args::Cli;
use crate::layers::Layers;
use crate::resolve::{Purpose, resolve};
use clap::CommandFactory;
use mt_trainer::profile::MachineProfile;
use mt_trainer::run::{CommandLine, Question, plan, planned_stores};
use mt_trainer::schedule::Phase;
use std::path::Path;

/// The text of a plan, or of its refusal, for a machine of 16 cores and a program that takes 100 MiB.
fn planned(words: &str, profile: &MachineProfile) -> String {
    let all: Vec<String> = ["mt", "plan"].into_iter().chain(words.split_whitespace()).map(str::to_owned).collect();
    let matches = Cli::command().try_get_matches_from(&all).unwrap();
    let flags = matches.subcommand_matches("plan").unwrap();
    let layers = Layers::merge(flags, None).unwrap();
    let mut resolved = resolve(&layers, Purpose::Plan).unwrap();
    resolved.settings.threads = 16;
    let found = plan(&Question {
        settings: &resolved.settings,
        profile,
        resident_bytes: Some(100 << 20),
        stores: planned_stores(&resolved.settings, None),
        drive_life_bytes: resolved.drive_life_bytes,
        command: &CommandLine::new(all),
    });
    match found {
        Ok(it) => report(&it).join("\n") + "\n",
        Err(error) => format!("{error}\n"),
    }
}

/// A profile that is shipped.
fn shipped(name: &str) -> MachineProfile {
    MachineProfile::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles").join(name)).unwrap()
}

fn check(name: &str, words: &str) {
    check_on(name, words, &MachineProfile::assumed(16));
}

fn check_on(name: &str, words: &str, profile: &MachineProfile) {
    assert!(words.contains("--disk"), "without it the free space of the machine that tests decides");
    let found = format!("$ mt plan {words}\n{}", planned(words, profile));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan_text/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, expected, "{} differs; UPDATE=1 rewrites it", path.display());
}

#[test]
fn golden_default() {
    check("default", "--ram 250MiB --disk 10GiB --tbw 600");
}

#[test]
fn golden_8b_in_64_gib() {
    check("8b", "--shape 8b --ram 64GiB --disk 4TiB --batch 8 --steps 1000 --tbw 1200");
}

#[test]
fn golden_70b_on_two_drives() {
    check("70b", "--shape 70b --ram 112GiB --disk 8TiB --store /nvme0 --store /nvme1");
}

/// Where levels differ from layer to layer: RAM holds the state and a part of the activations, and there is no disk.
#[test]
fn golden_levels_in_ram() {
    check("levels", "--shape 1.5b --ram 32GiB --disk 50GiB --batch 16 --durability none --discard");
}

/// Without a global norm both update schedules are planned, and either may be the faster one.
#[test]
fn golden_without_clipping() {
    check("8b_unclipped", "--shape 8b --ram 64GiB --disk 4TiB --batch 8 --steps 1000 --tbw 1200 --max-grad-norm off");
    check("long_unclipped", "--shape 1.5b --ram 24GiB --disk 1TiB --batch 16 --seq-len 4096 --max-grad-norm off");
}

/// On an H200: updates on both sides, layers that keep some, and nothing on disk.
#[test]
fn golden_7b_on_a_gpu() {
    let words = "--shape 7b --seq-len 1024 --vram 40GiB --ram 118GiB --disk 50GiB --durability none --discard";
    check_on("gpu_7b_8", &format!("{words} --batch 8"), &shipped("h200.json"));
    check_on("gpu_7b_96", &format!("{words} --batch 96"), &shipped("h200.json"));
    let unclipped = format!("{words} --batch 8 --max-grad-norm off --no-nan-guard");
    check_on("gpu_7b_8_unclipped", &unclipped, &shipped("h200.json"));
}

/// A workstation whose drive holds most of the state.
#[test]
fn golden_8b_on_a_gpu_and_a_drive() {
    let words = "--shape 8b --batch 16 --seq-len 1024 --vram 22GiB --ram 48GiB --disk 2TiB --tbw 1200 --steps 500";
    check_on("gpu_8b_drive", words, &shipped("workstation.json"));
}

/// A GPU that holds all: no page stays anywhere else.
#[test]
fn golden_in_vram() {
    let words = "--shape 1.5b --seq-len 1024 --vram 60GiB --ram 118GiB --disk 50GiB --durability none --batch 8";
    check_on("gpu_in_vram", words, &shipped("h200.json"));
}

#[test]
fn golden_gpu_does_not_fit() {
    let words = "--shape 7b --seq-len 1024 --vram 2GiB --ram 112GiB --disk 50GiB --durability none --batch 8";
    check_on("gpu_does_not_fit", words, &shipped("h200.json"));
    let words =
        "--shape 7b --seq-len 1024 --vram 22GiB --ram 112GiB --disk 1GiB --durability none --discard --batch 96";
    check_on("gpu_needs_ram", words, &shipped("h200.json"));
}

#[test]
fn golden_does_not_fit() {
    check("does_not_fit", "--shape 8b --ram 1GiB --disk 50GiB");
}

/// A question's answer in numbers.
fn answer(words: &str, profile: &MachineProfile) -> Result<Report, mt_trainer::Error> {
    let all: Vec<String> = ["mt", "plan"].into_iter().chain(words.split_whitespace()).map(str::to_owned).collect();
    let matches = Cli::command().try_get_matches_from(&all).unwrap();
    let layers = Layers::merge(matches.subcommand_matches("plan").unwrap(), None).unwrap();
    let resolved = resolve(&layers, Purpose::Plan).unwrap();
    let stores = planned_stores(&resolved.settings, None);
    let (settings, command) = (&resolved.settings, &CommandLine::new(all));
    plan(&Question { settings, profile, resident_bytes: Some(100 << 20), stores, drive_life_bytes: None, command })
}

/// The lines on more tokens are what is said to who asks for those tokens: wherever the state lives, with commits or
/// without. They had been estimated with fewer plans, up to 36 times too slow.
#[test]
fn more_tokens_are_planned_as_if_they_were_asked_for() {
    let profile = shipped("h200.json");
    for words in [
        "--shape 1.5b --seq-len 128 --vram 40GiB --ram 3GiB --disk 100GiB",
        "--shape 3b --seq-len 1024 --vram 130GiB --ram 64GiB --disk 50GiB --durability none",
        "--shape 1.5b --seq-len 256 --device cpu --ram 12GiB --disk 100GiB --durability none --micro-batch 4",
    ] {
        let with = |batch: u64| answer(&format!("{words} --batch {batch}"), &profile).unwrap();
        for more in with(4).more {
            let (said, asked) = (more.seconds.unwrap(), with(4 * more.times).step.seconds);
            assert!((said / asked - 1.0).abs() < 0.01, "{words}: {} times: {said} s, asked {asked} s", more.times);
        }
    }
}

/// A whole run takes its steps, the commits that come between them, and the last update with the last commit.
#[test]
fn a_run_takes_as_many_commits_as_it_makes() {
    let (words, profile) =
        ("--shape 1.5b --seq-len 128 --vram 40GiB --ram 3GiB --disk 100GiB --checkpoint-every 5", shipped("h200.json"));
    let run = |steps: u64| answer(&format!("{words} --steps {steps}"), &profile).unwrap();
    let seconds = |steps| run(steps).totals.unwrap().seconds;
    let (plain, with_commit) = (seconds(5) - seconds(4), seconds(6) - seconds(5));
    let said = run(5).step;
    assert!(said.commit_seconds > 0.0 && plain < said.seconds, "{plain} s of {said:?}");
    assert!((with_commit - plain - said.commit_seconds).abs() < 1e-6, "{plain} and {with_commit} s of {said:?}");
    assert!((seconds(10) - seconds(5) - 5.0 * said.seconds).abs() < 1e-6, "{said:?}");
}

/// A phase that mostly waits is not bound by what computes in it.
#[test]
fn what_waits_for_bytes_is_not_bound_by_a_gpu() {
    for (words, binding) in [
        ("--shape 7b --seq-len 1024 --vram 22GiB --ram 24GiB --disk 2TiB --batch 8", "disk_reads"),
        ("--shape 7b --seq-len 64 --vram 130GiB --ram 64GiB --disk 1TiB --batch 8 --checkpoint-every 1", "commits"),
    ] {
        let it = answer(words, &shipped("h200.json")).unwrap();
        let of_update = it.step.phases.iter().find(|phase| phase.phase == Phase::Update).unwrap();
        assert!(2.0 * of_update.wait_seconds > of_update.seconds, "{words}: {of_update:?}");
        assert_eq!(serde_json::to_value(of_update.binding).unwrap(), binding, "{words}: {of_update:?}");
    }
}

/// More of anything never makes a step slower: neither where it is asked for as a change, nor planned as such.
#[test]
fn more_memory_is_never_predicted_to_be_slower() {
    let profile = shipped("workstation.json");
    for (shape, rams) in [("7b --vram 22GiB", [24, 48]), ("70b --vram 22GiB --batch 16", [64, 128])] {
        let mut before = f64::INFINITY;
        for ram in rams {
            let words = format!("--shape {shape} --ram {ram}GiB --seq-len 1024 --disk 8TiB --store /a --store /b");
            let it = answer(&words, &profile).unwrap();
            for change in &it.what_if {
                assert!(change.times_faster >= 1.0, "{words}: {change:?}");
            }
            assert!(it.step.seconds <= 1.01 * before, "{words}: {} s after {before} s", it.step.seconds);
            before = it.step.seconds;
        }
    }
}

/// What a step needs at least of a GPU does not grow with the layers, but for the sums of squares of their gradients.
#[test]
fn the_smallest_vram_hardly_depends_on_layers() {
    let profile = shipped("h200.json");
    let needed = [8, 16, 28].map(|layers| {
        let folder = std::env::temp_dir().join(format!("mt-plan-test-{}-{layers}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = format!(
            r#"{{"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096,
            "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32768,
            "num_hidden_layers": {layers}, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
            "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false, "hidden_act": "silu"}}"#
        );
        std::fs::write(folder.join("config.json"), config).unwrap();
        let words = |vram: u64| {
            let model = folder.display();
            format!(
                "--model {model} --device cuda --vram {vram} --ram 118GiB --batch 8 --seq-len 1024 --durability none \
                 --disk 2TiB"
            )
        };
        let Err(mt_trainer::Error::DoesNotFit { need_bytes, .. }) = answer(&words(1 << 30), &profile) else {
            panic!("a step needs more than 1 GiB of VRAM");
        };
        assert!(answer(&words(need_bytes), &profile).is_ok(), "the nearest budget is accepted");
        assert!(answer(&words(need_bytes - (32 << 20)), &profile).is_err(), "it is near the smallest");
        std::fs::remove_dir_all(&folder).unwrap();
        need_bytes
    });
    assert!(needed[2].abs_diff(needed[0]) <= 64 << 20 && needed[1] <= needed[2], "{needed:?}");
}
