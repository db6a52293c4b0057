//! Which profile a command plans with. `--profile FILE` and `assumed` say it; `auto` is the saved profile if it is of
//! this machine, else what a probe of a few seconds finds, kept for the next time, else what is assumed.
//!
//! Saved: `$XDG_CONFIG_HOME/megatrain/profile.json`; a model's shapes, and GPUs, that it lacks are probed and added.
//! Kept: `$XDG_CACHE_HOME/megatrain/probe-....json`, a file for each machine, number of threads and set of file
//! systems; what runs measure goes into it, a part of the way each time, and where a run was far off the processor is
//! probed anew for the next. A probe that fails or cannot be kept is told,
//! never an error.

use crate::failure::Failure;
use crate::say;
use crate::table::seconds;
use mt_engine::space::existing;
use mt_trainer::profile::probe::Wanted;
use mt_trainer::profile::probe::today;
use mt_trainer::profile::{Machine, MachineProfile, Measured};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What `--profile` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Saved, else probed, else assumed.
    Auto,
    /// Nothing of the machine but its cores.
    Assumed,
    /// A file, of this machine or another.
    File(PathBuf),
}

/// What a profile is wanted for.
pub struct Request {
    /// Folders of the store.
    pub stores: Vec<PathBuf>,
    /// CPU threads.
    pub threads: u64,
    /// Shapes of the kernels; None: they are not known, and nothing is probed.
    pub wanted: Option<Wanted>,
    /// The GPU, if one may compute.
    pub gpu: Option<WantedGpu>,
}

/// A GPU of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedGpu {
    /// Its number.
    pub index: usize,
    /// Its name, by which a profile knows it: numbers change with what a process is shown.
    pub name: String,
}

impl Request {
    /// Whether something is wanted that a profile does not have, or not for sure.
    fn exceeds(&self, profile: &MachineProfile) -> bool {
        let has_shapes = self.wanted.as_ref().is_none_or(|wanted| wanted.clone().missing(&profile.compute).is_empty());
        !has_shapes || profile.doubtful && self.wanted.is_some() || self.unknown_gpu(profile).is_some()
    }

    /// The GPU, if a profile does not have it.
    fn unknown_gpu(&self, profile: &MachineProfile) -> Option<&WantedGpu> {
        self.gpu.as_ref().filter(|wanted| profile.gpus.iter().all(|gpu| gpu.name != wanted.name))
    }

    /// The profile with the wanted GPU alone, which so stands for whatever number it has.
    fn narrowed(&self, mut profile: MachineProfile) -> MachineProfile {
        if let Some(wanted) = &self.gpu {
            profile.gpus.retain(|gpu| gpu.name == wanted.name);
            profile.gpus.truncate(1);
        }
        profile
    }
}

impl Choice {
    /// Reads the flag's text.
    pub fn parse(text: &str) -> Result<Choice, String> {
        match text {
            "auto" => Ok(Choice::Auto),
            "assumed" => Ok(Choice::Assumed),
            path => crate::values::path(path).map(Choice::File),
        }
    }

    /// The profile.
    ///
    /// # Errors
    /// A file that was named and does not read as a profile.
    pub fn obtain(&self, request: &Request) -> Result<MachineProfile, Failure> {
        let machine = Machine::this();
        let assumed = || MachineProfile::assumed(machine.cores);
        match self {
            Choice::Assumed => Ok(assumed()),
            Choice::File(path) => Ok(MachineProfile::read(path).map_err(|error| error.named_by("--profile"))?),
            Choice::Auto => {
                let saved = saved(&machine).map(|profile| completed(profile, request));
                let found = saved.or_else(|| probed(&machine, request));
                Ok(found.map_or_else(assumed, |profile| request.narrowed(profile)))
            }
        }
    }

    /// Takes what a run measured into the kept profile that it was planned with. A profile that was saved or named is
    /// its owner's and stays as it is.
    pub fn learn(&self, request: &Request, measured: &Measured) {
        let machine = Machine::this();
        if *self != Choice::Auto || measured.is_empty() || saved(&machine).is_some() {
            return;
        }
        let dirs = directories(&request.stores);
        if let Some(file) = kept_file(&machine, request.threads, &dirs) {
            take_in(&file, &machine, &dirs, measured);
        }
    }

    /// Whether the profile may be of another machine.
    pub fn is_file(&self) -> bool {
        matches!(self, Choice::File(_))
    }
}

/// Where a profile is saved; None where the system names no place.
pub fn saved_file() -> Option<PathBuf> {
    folder("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("profile.json"))
}

/// The saved profile, if it is of this machine. One that does not read is left alone and said so.
pub fn saved(machine: &Machine) -> Option<MachineProfile> {
    let path = saved_file()?;
    if !path.is_file() {
        return None;
    }
    match MachineProfile::read(&path) {
        Ok(profile) => Some(profile).filter(|profile| profile.machine == *machine),
        Err(error) => {
            say::err(format_args!("the saved profile is passed over: {error}"));
            None
        }
    }
}

/// A saved profile with the shapes and GPUs that it lacks, which are probed and added to its file: between shapes that
/// are far apart rates cannot be read off. What was measured stays as it is.
fn completed(profile: MachineProfile, request: &Request) -> MachineProfile {
    let wanted = request.wanted.as_ref().filter(|_| request.exceeds(&profile));
    let Some((wanted, file)) = wanted.zip(saved_file()) else { return profile };
    probe(request, wanted, Some((&file, profile.clone()))).unwrap_or(profile)
}

/// What an earlier probe kept, as far as it goes, and a probe for the rest.
fn probed(machine: &Machine, request: &Request) -> Option<MachineProfile> {
    let wanted = request.wanted.as_ref()?;
    let dirs = directories(&request.stores);
    let file = kept_file(machine, request.threads, &dirs);
    let known = file.as_ref().and_then(|file| kept(file, machine, &dirs));
    let profile = match known {
        Some(kept) if !request.exceeds(&kept) => Some(kept),
        Some(kept) => probe(request, wanted, file.as_deref().map(|file| (file, kept))),
        None => probe(request, wanted, None).inspect(|profile| keep(file.as_deref(), profile)),
    };
    profile.map(|mut profile| {
        // The same file systems may be asked for by other folders of theirs.
        profile.disks.iter_mut().zip(&dirs).for_each(|(disk, dir)| disk.path.clone_from(dir));
        profile
    })
}

/// The profile that is kept in a file, if it is of this machine and these drives.
fn kept(file: &Path, machine: &Machine, dirs: &[PathBuf]) -> Option<MachineProfile> {
    let kept = Some(file).filter(|file| file.is_file()).and_then(|file| MachineProfile::read(file).ok())?;
    (kept.machine == *machine && kept.disks.len() == dirs.len()).then_some(kept)
}

/// Takes what a run measured into the profile that is kept in a file.
fn take_in(file: &Path, machine: &Machine, dirs: &[PathBuf], measured: &Measured) {
    if let Some(mut profile) = kept(file, machine, dirs) {
        profile.learn(measured, today());
        keep(Some(file), &profile);
    }
}

/// Probes in a process of its own; with `kept`, only the shapes and the GPU that it lacks.
fn probe(request: &Request, wanted: &Wanted, kept: Option<(&Path, MachineProfile)>) -> Option<MachineProfile> {
    let begin = Instant::now();
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.arg("probe").arg("--threads").arg(request.threads.to_string()).stdin(Stdio::null());
    command.arg("--wanted").arg(serde_json::to_string(wanted).expect("shapes are numbers and names"));
    let unknown = match &kept {
        Some((_, known)) => request.unknown_gpu(known),
        None => request.gpu.as_ref(),
    };
    unknown.iter().for_each(|gpu| _ = command.arg("--gpu").arg(gpu.index.to_string()));
    directories(&request.stores).iter().for_each(|dir| _ = command.arg("--dir").arg(dir));
    if let Some((file, _)) = &kept {
        command.arg("--known").arg(file);
    }
    let failed = |why: &str| {
        say::err(format_args!("this machine could not be probed, rates are assumed: {}", why.trim_end()));
        None
    };
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return failed(&error.to_string()),
    };
    if !output.status.success() {
        return failed(&String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let profile = match MachineProfile::parse(&text, Path::new("probe")) {
        Ok(profile) => profile,
        Err(error) => return failed(&error.to_string()),
    };
    let told = String::from_utf8_lossy(&output.stderr);
    told.lines().for_each(|line| say::err(line.strip_prefix("mt: ").unwrap_or(line)));
    let found = match &kept {
        Some((_, known)) if profile == *known => return Some(profile),
        Some((file, known)) => {
            keep(Some(file), &profile);
            profile.news_in_words(known)
        }
        None => profile.rates_in_words(),
    };
    say::err(format_args!("probed this machine in {}: {found}", seconds(begin.elapsed().as_secs_f64())));
    Some(profile)
}

/// Keeps a profile, at once whole; without a place to keep it, it is made again the next time.
fn keep(file: Option<&Path>, profile: &MachineProfile) {
    let Some(file) = file else { return };
    if let Err(error) = save(file, profile) {
        say::err(format_args!("the profile is not kept: {}: {error}", file.display()));
    }
}

/// Writes a profile, at once whole.
///
/// # Errors
/// The folder or the file cannot be written.
pub fn save(file: &Path, profile: &MachineProfile) -> std::io::Result<()> {
    let new = file.with_extension(format!("new-{}", std::process::id()));
    let saved = std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))
        .and_then(|()| std::fs::write(&new, profile.to_json()))
        .and_then(|()| std::fs::rename(&new, file));
    saved.inspect_err(|_| _ = std::fs::remove_file(&new))
}

/// A directory of each file system that holds stores, in their order.
fn directories(stores: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for store in stores {
        // Relative to where the command was given; the profile is kept for others too.
        let store = std::path::absolute(store).unwrap_or_else(|_| store.clone());
        let dir = existing(&store);
        let device = device(dir);
        if !found.iter().any(|(known, _)| *known == device) {
            found.push((device, dir.to_path_buf()));
        }
    }
    found.into_iter().map(|(_, dir)| dir).collect()
}

fn device(dir: &Path) -> u64 {
    std::fs::metadata(dir).map_or(0, |data| data.dev())
}

/// The file that keeps what is known of this machine, with these threads, and these file systems.
fn kept_file(machine: &Machine, threads: u64, dirs: &[PathBuf]) -> Option<PathBuf> {
    folder("XDG_CACHE_HOME", ".cache").map(|folder| folder.join(name(machine, threads, dirs)))
}

/// The folder that keeps what was compiled for a GPU.
pub fn gpu_cache() -> Option<PathBuf> {
    folder("XDG_CACHE_HOME", ".cache").map(|folder| folder.join("cubins"))
}

/// Name of the file that keeps what was probed on this machine, with these threads, of these file systems.
fn name(machine: &Machine, threads: u64, dirs: &[PathBuf]) -> String {
    let mut hasher = DefaultHasher::new();
    (&machine.processor, machine.cores, machine.ram_bytes, threads).hash(&mut hasher);
    dirs.iter().for_each(|dir| device(dir).hash(&mut hasher));
    format!("probe-{:016x}.json", hasher.finish())
}

/// This program's folder of a kind, as the XDG convention has it; None where the system names none.
fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let named = std::env::var_os(variable).map(PathBuf::from).and_then(absolute);
    let home = || std::env::var_os("HOME").map(PathBuf::from).and_then(absolute);
    let base = named.or_else(|| home().map(|home| home.join(below_home)))?;
    Some(base.join("megatrain"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mt_trainer::model::ModelConfig;
    use mt_trainer::profile::probe::add;
    use mt_trainer::profile::{GpuRates, Origin};

    #[test]
    fn a_profile_is_probed_for_the_shapes_and_the_gpu_that_it_lacks() {
        let known = MachineProfile { gpus: vec![GpuRates::assumed()], ..MachineProfile::assumed(2) };
        let text = r#"{"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}"#;
        let config = ModelConfig::parse(text, Path::new("config.json")).unwrap();
        let request = |shapes: bool, gpu: Option<&str>| {
            let wanted = shapes.then(|| Wanted::new(&config, 1, 16, 1));
            let gpu = gpu.map(|name: &str| WantedGpu { index: 3, name: name.to_owned() });
            Request { stores: Vec::new(), threads: 2, wanted, gpu }
        };
        let (name, other) = (known.gpus[0].name.as_str(), "another");
        assert!(!request(false, None).exceeds(&known) && !request(false, Some(name)).exceeds(&known));
        assert!(request(false, Some(other)).exceeds(&known) && request(true, Some(name)).exceeds(&known));
        // What a run found to be far off is measured anew, though nothing is missing.
        let mut doubtful = known.clone();
        add(&mut doubtful, &Wanted::new(&config, 1, 16, 1)).unwrap();
        assert!(!request(true, None).exceeds(&doubtful));
        doubtful.doubtful = true;
        assert!(request(true, None).exceeds(&doubtful) && !request(false, None).exceeds(&doubtful));
        // Whatever else the machine has, a plan finds the rates of the GPU that computes.
        let both = MachineProfile {
            gpus: vec![GpuRates { name: other.to_owned(), ..GpuRates::assumed() }, known.gpus[0].clone()],
            ..known.clone()
        };
        assert_eq!(request(false, Some(name)).narrowed(both.clone()), known);
        assert_eq!(request(false, None).narrowed(both.clone()), both);
    }

    #[test]
    fn what_runs_measure_goes_into_the_kept_profile_of_this_machine_alone() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("cache/probe.json");
        let (machine, dirs) = (Machine::this(), vec![place.path().to_path_buf()]);
        let measured = Measured { write: Some(0.5), ..Measured::default() };
        take_in(&file, &machine, &dirs, &measured);
        assert!(!file.exists(), "nothing was kept, so there is nothing to go on from");

        let old = MachineProfile { machine: machine.clone(), origin: Origin::Probed, ..MachineProfile::assumed(2) };
        keep(Some(&file), &old);
        take_in(&file, &machine, &dirs, &measured);
        let new = MachineProfile::read(&file).unwrap();
        assert_eq!((new.origin, new.runs), (Origin::Measured, 1));
        let times = new.disks[0].write_bytes_per_s / old.disks[0].write_bytes_per_s;
        assert!((times - 0.5_f64.powf(0.25)).abs() < 1e-9, "{times}");
        assert_eq!((&new.compute, new.disks[0].read_bytes_per_s), (&old.compute, old.disks[0].read_bytes_per_s));
        let names: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");

        let other = Machine { cores: machine.cores + 1, ..machine };
        take_in(&file, &other, &dirs, &measured);
        assert_eq!(MachineProfile::read(&file).unwrap(), new);
    }
}
