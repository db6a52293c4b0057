//! Plans as text. `UPDATE=1 cargo test -p mt-tools golden` writes the files anew.

use super::*;
use crate::args::Cli;
use crate::layers::Layers;
use crate::resolve::{Purpose, resolve};
use clap::CommandFactory;
use mt_trainer::profile::MachineProfile;
use mt_trainer::run::{CommandLine, Question, plan, planned_stores};
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
    check("levels", "--shape 1.5b --ram 32GiB --batch 16 --durability none --discard");
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
    let words = "--shape 7b --seq-len 1024 --vram 40GiB --ram 118GiB --durability none --discard";
    check_on("gpu_7b_8", &format!("{words} --batch 8"), &shipped("h200.json"));
    check_on("gpu_7b_96", &format!("{words} --batch 96"), &shipped("h200.json"));
}

/// A workstation whose drive holds most of the state.
#[test]
fn golden_8b_on_a_gpu_and_a_drive() {
    let words = "--shape 8b --batch 16 --seq-len 1024 --vram 22GiB --ram 48GiB --disk 2TiB --tbw 1200 --steps 500";
    check_on("gpu_8b_drive", words, &shipped("workstation.json"));
}

#[test]
fn golden_gpu_does_not_fit() {
    let words = "--shape 7b --seq-len 1024 --vram 2GiB --ram 112GiB --durability none --discard --batch 8";
    check_on("gpu_does_not_fit", words, &shipped("h200.json"));
    let words =
        "--shape 7b --seq-len 1024 --vram 22GiB --ram 112GiB --disk 1GiB --durability none --discard --batch 96";
    check_on("gpu_needs_ram", words, &shipped("h200.json"));
}

#[test]
fn golden_does_not_fit() {
    check("does_not_fit", "--shape 8b --ram 1GiB --disk 50GiB");
}
