//! `mt ls` and `mt rm`.

use crate::args::{List, Remove};
use crate::failure::Failure;
use crate::say;
use crate::table::steps;
use mt_trainer::run::size::human;
use mt_trainer::run::{Inspection, Standing, inspect, list as list_runs, quoted, removal, remove as remove_run};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Lists the runs in a folder.
pub fn list(args: &List) -> Result<u8, Failure> {
    let dir = Path::new(&args.dir);
    if !dir.exists() && args.dir == "runs" {
        say::err("no runs here yet; start one: mt train");
        return Ok(0);
    }
    let runs = list_runs(dir)?;
    let width = runs.iter().map(|(path, _)| path.display().to_string().len()).max().unwrap_or(0);
    for (path, run) in &runs {
        let run = match run {
            Ok(run) => run,
            Err(error) if args.json => {
                say::out(json!({"run": path, "state": format!("does not read: {error}")}));
                continue;
            }
            Err(error) => {
                say::out(format_args!("{:<width$}  does not read: {error}", path.display().to_string()));
                continue;
            }
        };
        let bytes = run.store_bytes + run.folder_bytes;
        let loss = run.last.as_ref().map(|last| last.loss);
        if args.json {
            let value = json!({"run": run.run, "state": standing(run), "loss": loss, "bytes": bytes});
            say::out(value);
        } else {
            let loss = loss.map_or("no step yet".to_owned(), |loss| format!("loss {loss:.4}"));
            let path = path.display().to_string();
            say::out(format_args!("{path:<width$}  {:>9}  {loss:<12}  {}", human(bytes), standing(run)));
        }
    }
    Ok(0)
}

/// Deletes a run, after saying what that frees and asking.
pub fn remove(args: &Remove) -> Result<u8, Failure> {
    let path = Path::new(&args.run);
    let run = inspect(path)?;
    // What would refuse it does so before anybody is asked, and keeps others off from here on.
    let removal = removal(path)?;
    let stores: Vec<String> = run.stores.iter().map(|store| store.display().to_string()).collect();
    let (what, bytes) = match &run.owner {
        None => (format!("removing it with its store in {}", stores.join(", ")), run.store_bytes + run.folder_bytes),
        Some(owner) => (format!("a copy of {}, whose store stays; removing it", owner.display()), run.folder_bytes),
    };
    say::out(format_args!("{}: {}; {what} frees {}", args.run, standing(&run), human(bytes)));
    if !args.yes && !is_agreed(&args.run)? {
        say::out("nothing removed");
        return Ok(0);
    }
    let removed = remove_run(removal)?;
    say::out(format_args!("freed {}", human(removed.bytes)));
    for path in &removed.kept {
        say::out(format_args!("kept {}, which is not the run's", path.display()));
    }
    Ok(0)
}

/// Asks on the terminal; without one the answer must be on the command line.
fn is_agreed(run: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::input(format!("nobody to ask, nothing removed; run: mt rm {} --yes", quoted(run))));
    }
    _ = write!(std::io::stdout(), "remove it? [y/N] ").and_then(|()| std::io::stdout().flush());
    let mut answer = String::new();
    _ = std::io::stdin().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Where a run stands, in words.
pub fn standing(inspection: &Inspection) -> String {
    match &inspection.standing {
        Standing::Committed { step, total_steps } if step >= total_steps => format!("finished, {}", steps(*step)),
        Standing::Committed { step, total_steps } => format!("step {step} of {total_steps}, can be resumed"),
        Standing::InUse(pid) => format!("in use by process {pid}"),
        Standing::NoCommit => "no commit yet; a resume imports again".to_owned(),
        Standing::NotKept => "run with --durability none, nothing to resume".to_owned(),
        Standing::Broken(why) => format!("its store does not open: {why}"),
    }
}
