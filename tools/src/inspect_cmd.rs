//! `mt inspect`.

use crate::args::Named;
use crate::failure::Failure;
use crate::list_cmd::standing;
use crate::table::{count, line};
use mt_trainer::run::size::human;
use mt_trainer::run::{Inspection, inspect};
use serde_json::{Value, json};
use std::path::Path;

/// Shows what a run's folder and store hold.
pub fn run(args: &Named) -> Result<u8, Failure> {
    let inspection = inspect(Path::new(&args.run))?;
    match args.json {
        true => println!("{}", as_json(&inspection)),
        false => lines(&inspection).iter().for_each(|line| println!("{line}")),
    }
    Ok(0)
}

fn lines(inspection: &Inspection) -> Vec<String> {
    let stores: Vec<String> = inspection.stores.iter().map(|store| store.display().to_string()).collect();
    let disk = format!("{} in the store, {} beside it", human(inspection.store_bytes), human(inspection.folder_bytes));
    let mut lines = vec![
        line("run", &inspection.run.display().to_string()),
        line("state", &standing(inspection)),
        line("volumes", &stores.join(", ")),
        line("disk", &disk),
    ];
    if let Some(last) = &inspection.last {
        lines.push(line("last line", &format!("step {}, loss {:.4}", last.step, last.loss)));
    }
    if let Some(description) = &inspection.description {
        let identity = &description.identity;
        lines.push(line("store", &format!("{}, format version {}", identity.uuid, identity.format_version)));
        let written = human(identity.ledger.iter().map(|volume| volume.write_bytes).sum());
        let read = human(identity.ledger.iter().map(|volume| volume.read_bytes).sum());
        lines.push(line("commit", &format!("{}; over its life {read} read, {written} written", description.commit)));
        for region in &description.regions {
            let size = format!("{} pages of {}", count(region.pages.into()), human(region.page_bytes.into()));
            lines.push(line(
                "region",
                &format!("{:<6} {:?}, {size}, {}", region.name, region.kind, human(region.bytes())),
            ));
        }
    }
    if let Some(note) = &inspection.note {
        let value = serde_json::to_value(note).expect("a note holds only numbers and text");
        lines.push(line("note", &value.to_string()));
    }
    let settings = serde_json::to_value(&inspection.settings).expect("settings hold only numbers, text and lists");
    for (name, value) in settings.as_object().into_iter().flatten() {
        lines.push(line("setting", &format!("{name} = {value}")));
    }
    lines
}

fn as_json(inspection: &Inspection) -> Value {
    let description = inspection.description.as_ref();
    let regions = description.map(|description| {
        let region = |region: &mt_engine::RegionSpec| {
            json!({"name": region.name, "kind": format!("{:?}", region.kind), "page_bytes": region.page_bytes,
                "pages": region.pages})
        };
        description.regions.iter().map(region).collect::<Vec<Value>>()
    });
    json!({
        "run": inspection.run,
        "state": standing(inspection),
        "volumes": inspection.stores,
        "store_bytes": inspection.store_bytes,
        "folder_bytes": inspection.folder_bytes,
        "uuid": description.map(|description| description.identity.uuid.to_string()),
        "format_version": description.map(|description| description.identity.format_version),
        "commit": description.map(|description| description.commit.0),
        "regions": regions,
        "note": inspection.note,
        "settings": inspection.settings,
    })
}
