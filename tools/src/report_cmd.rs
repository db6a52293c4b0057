//! `mt report`.

use crate::args::Report;
use crate::failure::Failure;
use crate::report_page;
use crate::resume_cmd::read;
use crate::{say, values};
use mt_trainer::input;
use mt_trainer::run::{REPORT, history};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Writes a run's page.
pub fn run(args: &Report) -> Result<u8, Failure> {
    let run = Path::new(&args.run);
    let out = read(&args.out, "out", values::here)?.unwrap_or_else(|| run.join(REPORT));
    let life = read(&args.tbw, "tbw", values::life)?;
    let history = history(run)?;
    input::file_place(&out, "--out", "a file")?;
    let page = report_page::page(&history, life);
    write(&out, &page).map_err(|source| input::unmade(&out, "--out", "a file", "writing the report", source))?;
    match args.json {
        true => say::out(json!({"report": out, "steps": history.steps.len()})),
        false => say::out(format_args!("report of {} steps: {}", history.steps.len(), out.display())),
    }
    Ok(0)
}

/// Beside the file first: a report that is being looked at is the old one or the new one.
fn write(out: &Path, page: &str) -> std::io::Result<()> {
    let mut beside = out.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    std::fs::write(&beside, page)?;
    std::fs::rename(&beside, out)
}
