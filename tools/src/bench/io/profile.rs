//! The machine's profile as plans take it: the drives as they were measured here, the kernels by the trainer's own
//! probe, several times.

use super::options::{self, Effort, REPEATS};
use super::report::PathReport;
use super::summary::Summary;
use super::watch::Watch;
use crate::failure::Failure;
use crate::{profiles, say};
use mt_trainer::measure::gpu::Gpu;
use mt_trainer::model::ModelConfig;
use mt_trainer::model::shapes::find;
use mt_trainer::profile::probe::{Wanted, add, add_gpu, machine};
use mt_trainer::profile::{Disk, MachineProfile, Origin};
use mt_trainer::{default_model, memory};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Rows and tokens of a row of the micro-batches that kernels are measured at: 1,024 tokens, as runs have where nobody
/// says otherwise.
const ROWS: u64 = 4;
const SEQ: u64 = 512;

/// Measures the kernels, takes the drives from the reports of single paths.
///
/// # Errors
/// The probe's; a stop.
pub fn measure(paths: &[PathReport], threads: u64, effort: &Effort, watch: &Watch) -> Result<MachineProfile, Failure> {
    let dirs: Vec<PathBuf> = paths.iter().map(|path| path.places[0].path.clone()).collect();
    let mut found = Vec::new();
    let shapes = effort.shapes.iter().map(|name| wanted(name)).collect::<Result<Vec<Wanted>, Failure>>()?;
    for _ in 0..if effort.shapes.len() > 1 { REPEATS } else { 1 } {
        watch.go_on()?;
        let mut profile = machine(&dirs, threads as u32, &built_in()?)?;
        // Shapes that are known by then are passed over.
        for wanted in &shapes {
            add(&mut profile, wanted)?;
        }
        found.push(serde_json::to_value(&profile).expect("a profile holds only numbers and text"));
    }
    let middle = serde_json::to_string(&median(&found)).expect("numbers and text");
    let mut profile = MachineProfile::parse(&middle, Path::new("profile"))?;
    if Gpu::name_of(0).is_some()
        && let Err(error) = add_gpu(&mut profile, 0, profiles::gpu_cache().as_deref())
    {
        say::err(format_args!("the GPU is not in the profile: {error}"));
    }
    profile.origin = Origin::Measured;
    profile.disks = paths.iter().filter_map(disk).collect();
    Ok(profile)
}

/// Rates of a path as a run moves pages: with checksums.
fn disk(path: &PathReport) -> Option<Disk> {
    let rate = |checked: &str, plain: &str| {
        path.cell(checked).or_else(|| path.cell(plain)).map(|cell| cell.bytes_per_s.median)
    };
    Some(Disk {
        path: path.places[0].path.clone(),
        read_bytes_per_s: rate(options::READ_CHECKED, options::READ)?,
        write_bytes_per_s: rate(options::WRITE_CHECKED, options::WRITE)?,
        mixed_bytes_per_s: rate(options::MIXED_CHECKED, options::MIXED)?,
        latency_s: path.cell(options::SMALL_READ)?.latency?.p50_us * 1e-6,
    })
}

fn wanted(name: &str) -> Result<Wanted, Failure> {
    let shape = find(name).expect("a shape of the table");
    let config = ModelConfig::parse(&shape.config_json(), Path::new(name))?;
    let rows = memory::micro_batch_auto(ROWS, SEQ);
    Ok(Wanted::new(&config, rows as usize, SEQ as usize, 1))
}

/// The built-in model's shapes.
fn built_in() -> Result<Wanted, Failure> {
    let config = ModelConfig::parse(default_model::CONFIG_JSON, Path::new("built-in config.json"))?;
    let (batch, seq) = (default_model::BATCH, default_model::SEQ_LEN);
    let rows = memory::micro_batch_auto(batch, seq);
    Ok(Wanted::new(&config, rows as usize, seq as usize, 1))
}

/// Number by number the median of values that are alike but for their numbers.
fn median(values: &[Value]) -> Value {
    match &values[0] {
        Value::Number(first) if first.is_f64() => {
            Value::from(Summary::of(values.iter().filter_map(Value::as_f64).collect()).median)
        }
        Value::Array(first) => {
            let at = |index| values.iter().map(|value| value[index].clone()).collect::<Vec<_>>();
            (0..first.len()).map(|index| median(&at(index))).collect()
        }
        Value::Object(first) => {
            let at = |key: &String| values.iter().map(|value| value[key].clone()).collect::<Vec<_>>();
            Value::Object(first.keys().map(|key| (key.clone(), median(&at(key)))).collect())
        }
        other => other.clone(),
    }
}

/// Keeps the profile where `mt plan` and `mt train` look for it; where that is.
///
/// # Errors
/// It cannot be written (exit code 4).
pub fn save(profile: &MachineProfile) -> Result<PathBuf, Failure> {
    let path =
        profiles::saved_file().ok_or_else(|| Failure::new("--save: neither HOME nor XDG_CONFIG_HOME is set", 4))?;
    profiles::save(&path, profile).map_err(|error| Failure::new(format!("--save: {}: {error}", path.display()), 4))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_median_is_taken_number_by_number() {
        let of = |rate: f64, other: f64| json!({"name": "a", "count": 3, "rates": [{"x": rate}, {"x": other}]});
        let found = median(&[of(1.0, 9.0), of(3.0, 7.0), of(2.0, 8.0)]);
        assert_eq!(found, of(2.0, 8.0));
    }
}
