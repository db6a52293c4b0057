//! `mt probe`, which is not shown: measures this machine for another process of this program, so that the memory that
//! this takes is not counted to a run's budget, and prints the profile.

use crate::args::Probe;
use crate::failure::Failure;
use crate::{profiles, say};
use mt_trainer::Error;
use mt_trainer::profile::MachineProfile;
use mt_trainer::profile::probe::{Wanted, add, add_gpu, machine};
use std::path::{Path, PathBuf};

/// Measures and prints.
pub fn run(args: &Probe) -> Result<u8, Failure> {
    let wanted: Wanted = serde_json::from_str(&args.wanted)
        .map_err(|error| Error::input("command line", "--wanted", "shapes", error.to_string()))?;
    let mut profile = match &args.known {
        Some(path) => {
            let mut profile = MachineProfile::read(Path::new(path))?;
            add(&mut profile, &wanted)?;
            profile
        }
        None => {
            let dirs: Vec<PathBuf> = args.dir.iter().map(PathBuf::from).collect();
            machine(&dirs, args.threads, &wanted)?
        }
    };
    if let Some(index) = args.gpu
        && let Err(error) = add_gpu(&mut profile, index, profiles::gpu_cache().as_deref())
    {
        // What else was measured is of use without it.
        say::err(format_args!("GPU {index} could not be probed, its rates are assumed: {error}"));
    }
    say::out(profile.to_json().trim_end());
    Ok(0)
}
