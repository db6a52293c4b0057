//! `mt verify`.

use crate::args::Named;
use crate::failure::Failure;
use crate::progress::bar;
use crate::say;
use crate::table::{count, rate};
use mt_trainer::run::size::human;
use mt_trainer::run::verify;
use serde_json::json;
use std::path::Path;

/// Pages that are named for people.
const NAMED_MAX: usize = 50;

/// Compares every page with its checksum.
pub fn run(args: &Named) -> Result<u8, Failure> {
    let shown = bar("verifying", args.json);
    let found = verify(Path::new(&args.run), &mut |done, all| {
        shown.set_length(all);
        shown.set_position(done);
    })?;
    shown.finish_and_clear();
    found.notices.iter().for_each(say::err);
    if args.json {
        let value = json!({"step": found.step, "pages": found.pages, "bytes": found.bytes, "seconds": found.seconds,
            "corrupt": found.corrupt});
        say::out(value);
    }
    if !found.corrupt.is_empty() {
        return Err(Failure::new(named(&found.corrupt), 4));
    }
    if !args.json {
        say::out(format_args!(
            "verified the state after step {}: {} pages, every checksum as recorded; read {}, {}",
            found.step,
            count(found.pages),
            human(found.bytes),
            rate(found.bytes, found.seconds)
        ));
    }
    Ok(0)
}

/// The pages that are not what was committed, up to a number that a terminal takes.
fn named(corrupt: &[String]) -> String {
    let mut lines: Vec<String> = corrupt.iter().take(NAMED_MAX).cloned().collect();
    if corrupt.len() > NAMED_MAX {
        let all = count(corrupt.len() as u64);
        lines.push(format!("{all} pages are not what was committed; all of them: mt verify RUN --json"));
    }
    lines.join("\nmt: ")
}
