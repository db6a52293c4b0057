//! `mt doctor`: looks at machine, paths and libraries and says what is in the way, with the command that mends it.
//! Measures nothing and leaves nothing behind.

use crate::args::Doctor;
use crate::failure::Failure;
use crate::machine::checks::{self, Check, Level};
use crate::machine::host::Host;
use crate::machine::place::Place;
use crate::say;
use crate::table::line;
use mt_engine::bench::{Ground, UNIT_BYTES};
use mt_trainer::measure::libraries::{Found, Libraries};
use mt_trainer::run::quoted;
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Exit code where something is in the way.
const IN_THE_WAY: u8 = 1;

/// Looks and prints; 1 if something is in the way.
pub fn run(args: &Doctor) -> Result<u8, Failure> {
    let here = [PathBuf::from(".")];
    let paths = if args.paths.is_empty() { &here[..] } else { &args.paths };
    let mut all = checks::host(&Host::this());
    paths.iter().for_each(|path| all.extend(place(path)));
    all.extend(gpu());
    let worst = all.iter().map(|check| check.level).max().unwrap_or(Level::Good);
    if args.json {
        say::out(json!({"event": "doctor", "worst": worst, "checks": all}));
    } else {
        all.iter().flat_map(lines).for_each(say::out);
    }
    Ok(if worst == Level::Bad { IN_THE_WAY } else { 0 })
}

fn lines(check: &Check) -> Vec<String> {
    let level = match check.level {
        Level::Good => "ok",
        Level::Note => "note",
        Level::Bad => "BAD",
    };
    let mut out = vec![line(level, &format!("{}: {}", check.what, check.found))];
    out.extend(check.remedy.as_ref().map(|remedy| line("", &format!("-> {remedy}"))));
    out
}

/// A path, by a small file without a name.
fn place(path: &Path) -> Vec<Check> {
    let what = path.display().to_string();
    let refused = |why: String, remedy: String| vec![Check::not(Level::Bad, &what, why, remedy)];
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let remedy = format!("mkdir -p {}, or name the folder where pages are to be kept", shown(path));
            return refused("there is no such folder".to_owned(), remedy);
        }
        Ok(data) if !data.is_dir() => {
            let folder = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let remedy = format!("name the folder where pages are to be kept, as in mt doctor {}", shown(folder));
            return refused("not a folder".to_owned(), remedy);
        }
        _ => {}
    }
    let bad = |why: String| refused(why, "name a folder that you may write to".to_owned());
    let free = match mt_engine::free_bytes(path) {
        Ok(free) => free,
        Err(error) => return bad(error.to_string()),
    };
    let found = match Place::of(path, free) {
        Ok(found) => found,
        Err(error) => return bad(error.to_string()),
    };
    match Ground::reserve(&[path.to_path_buf()], UNIT_BYTES.into()) {
        Ok(ground) => checks::place(&found, ground.facts()[0].is_direct),
        Err(error) => bad(error.to_string()),
    }
}

/// A path as a shell takes it.
fn shown(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// Driver and libraries. Without a GPU nothing of them is needed.
fn gpu() -> Vec<Check> {
    let Libraries { gpu, files } = Libraries::look();
    let missing = if matches!(gpu, Found::Absent(_)) { Level::Note } else { Level::Bad };
    let mut out = vec![match gpu {
        Found::Good(name) => Check::good("GPU", name),
        Found::Broken(why) => Check::not(Level::Bad, "GPU", why, "see the message"),
        Found::Absent(why) => {
            let remedy = "with a GPU: install NVIDIA's driver; without: nothing, computing runs on the cores";
            Check::not(Level::Note, "GPU", why, remedy)
        }
    }];
    for (name, file) in files {
        out.push(match file {
            Ok(file) => Check::good(name, file.display().to_string()),
            Err(why) => {
                let remedy = "pip install nvidia-cuda-nvrtc nvidia-cublas, or set MT_CUDA_PATH to a folder that has it";
                Check::not(missing, name, why, remedy)
            }
        });
    }
    out
}
