//! `--device auto`: the GPU if there is one that can run the model and is predicted to be faster than the processor.
//! Never silently: what is chosen is said, and why.

use crate::profiles::WantedGpu;
use crate::resolve::Resolved;
use crate::table::seconds;
use mt_trainer::Error;
use mt_trainer::measure::gpu::Gpu;
use mt_trainer::profile::MachineProfile;
use mt_trainer::run::size::human;
use mt_trainer::run::{CommandLine, Question, step_seconds};
use mt_trainer::settings::{Auto, Device, Settings};
use mt_trainer::target::Precision;
use std::path::PathBuf;

/// A GPU that may be chosen.
struct Found {
    name: String,
    vram: u64,
}

/// The GPU whose rates a plan needs, if it is there.
pub fn wanted(resolved: &Resolved) -> Option<WantedGpu> {
    wanted_by(if resolved.is_device_open { Device::Cuda(0) } else { resolved.settings.device })
}

/// The same for a device that is settled.
pub fn wanted_by(device: Device) -> Option<WantedGpu> {
    match device {
        Device::Cpu => None,
        Device::Cuda(index) => {
            let index = index as usize;
            Some(WantedGpu { index, name: Gpu::name_of(index)? })
        }
    }
}

/// Settles what computes, where nothing says it, and gives the reason; None where something does. A profile from a file
/// is of the machine that is planned for: its GPU is meant, not this machine's.
pub fn choose(
    resolved: &mut Resolved,
    profile: &MachineProfile,
    stores: &[PathBuf],
    command: &CommandLine,
) -> Option<String> {
    if !resolved.is_device_open {
        return None;
    }
    let found = if resolved.profile.is_file() { in_profile(profile) } else { here() };
    let gpu = match found {
        Ok(gpu) => gpu,
        Err(why) => return Some(format!("device: the processor; {why}")),
    };
    let predicted = |settings: &Settings| {
        let (stores, settings) = (stores.to_vec(), settings);
        step_seconds(&Question { settings, profile, resident_bytes: None, stores, drive_life_bytes: None, command })
    };
    let on_gpu = Settings { device: Device::Cuda(0), precision: Precision::Bf16, ..resolved.settings.clone() };
    let fitted = predicted(&Settings { vram: Auto::Value(gpu.vram), ..on_gpu.clone() });
    let name = &gpu.name;
    match (fitted, predicted(&resolved.settings)) {
        (Ok(there), Ok(here)) if here <= there => {
            let (here, there) = (seconds(here), seconds(there));
            Some(format!("device: the processor; predicted: {here} a step, {there} on {name}"))
        }
        (Ok(there), here) => {
            resolved.settings = on_gpu;
            let there = seconds(there);
            let here = here.map_or("it does not fit".to_owned(), seconds);
            Some(format!("device: cuda:0, {name}, in bf16; predicted: {there} a step, on the processor {here}"))
        }
        (Err(why), _) => Some(format!("device: the processor; {name} cannot run it: {}", reason(&why))),
    }
}

/// Why a GPU cannot run a model, in a line.
fn reason(why: &Error) -> String {
    match why {
        Error::DoesNotFit { what, need_bytes, have_bytes: 0, .. } => {
            format!("does not fit: {what} needs {}", human(*need_bytes))
        }
        Error::DoesNotFit { what, need_bytes, have_bytes, .. } => {
            format!("does not fit: {what} needs {}, has {}", human(*need_bytes), human(*have_bytes))
        }
        other => first_line(&other.to_string()).to_owned(),
    }
}

/// The first GPU of a profile.
fn in_profile(profile: &MachineProfile) -> Result<Found, String> {
    let gpu = profile.gpus.first().ok_or("the profile has no GPU")?;
    Ok(Found { name: gpu.name.clone(), vram: gpu.vram_bytes })
}

/// The first GPU of this machine, if driver and libraries are there.
fn here() -> Result<Found, String> {
    let look = || {
        let gpu = Gpu::open(0, None)?;
        let vram = gpu.facts()?.free_bytes;
        Ok::<Found, mt_trainer::error::Error>(Found { name: gpu.name().to_owned(), vram })
    };
    look().map_err(|why| first_line(&why.to_string()).to_owned())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use crate::layers::Layers;
    use crate::resolve::{Purpose, resolve};
    use clap::CommandFactory;
    use mt_trainer::error::Part;
    use std::path::Path;

    /// What is said, and what computes then.
    fn chosen(words: &str, profile: &MachineProfile) -> (Option<String>, Device) {
        let all: Vec<String> = ["mt", "plan"].into_iter().chain(words.split_whitespace()).map(str::to_owned).collect();
        let matches = Cli::command().try_get_matches_from(&all).unwrap();
        let layers = Layers::merge(matches.subcommand_matches("plan").unwrap(), None).unwrap();
        let mut resolved = resolve(&layers, Purpose::Plan).unwrap();
        let said = choose(&mut resolved, profile, &[PathBuf::from("runs/store")], &CommandLine::new(all));
        (said, resolved.settings.device)
    }

    #[test]
    fn a_profile_says_which_gpu_there_is() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/h200.json");
        let profile = MachineProfile::read(&file).unwrap();
        let words = format!("--shape 3b --batch 8 --ram 100GiB --disk 1TiB --profile {}", file.display());
        let (said, device) = chosen(&words, &profile);
        assert_eq!(device, Device::Cuda(0));
        assert!(said.unwrap().starts_with("device: cuda:0, "));
        assert_eq!(chosen(&format!("{words} --device cpu"), &profile), (None, Device::Cpu));
        // Too little VRAM for a layer.
        let mut small = profile.clone();
        small.gpus[0].vram_bytes = 1 << 30;
        let (said, device) = chosen(&words, &small);
        assert_eq!(device, Device::Cpu);
        let said = said.unwrap();
        assert!(said.contains("cannot run it: does not fit: VRAM") && !said.contains("bytes"), "{said}");
        // A GPU that is slower than the processor.
        let mut slow = profile.clone();
        slow.gpus[0].products.iter_mut().for_each(|point| point.operations_per_s *= 1e-4);
        let (said, device) = chosen(&words, &slow);
        assert_eq!(device, Device::Cpu);
        assert!(said.unwrap().starts_with("device: the processor; predicted: "));
        let none = MachineProfile { gpus: Vec::new(), ..profile };
        assert_eq!(chosen(&words, &none).0.unwrap(), "device: the processor; the profile has no GPU");
    }

    #[test]
    fn what_does_not_fit_is_told_in_units_and_only_what_is_known() {
        let of = |have_bytes| {
            let what = "VRAM for a layer".to_owned();
            reason(&Error::DoesNotFit { part: Part::Vram, what, need_bytes: 3 << 30, have_bytes, hint: None })
        };
        assert_eq!(of(0), "does not fit: VRAM for a layer needs 3.00 GiB");
        assert_eq!(of(1 << 30), "does not fit: VRAM for a layer needs 3.00 GiB, has 1.00 GiB");
    }

    #[test]
    fn without_a_driver_the_reason_is_said() {
        if Gpu::name_of(0).is_some() {
            crate::say::out("skipped: this machine has a GPU");
            return;
        }
        let (said, device) = chosen("", &MachineProfile::assumed(2));
        assert_eq!(device, Device::Cpu);
        let said = said.unwrap();
        assert!(said.starts_with("device: the processor; ") && said.len() > 30, "{said}");
    }
}
