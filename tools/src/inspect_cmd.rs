//! `mt inspect`.

use crate::args::Named;
use crate::failure::Failure;
use crate::list_cmd::standing;
use crate::say;
use crate::table::{count, line};
use mt_trainer::run::size::human;
use mt_trainer::run::{Inspection, inspect};
use serde_json::{Value, json};
use std::path::Path;

/// Shows what a run's folder and store hold.
pub fn run(args: &Named) -> Result<u8, Failure> {
    let inspection = inspect(Path::new(&args.run))?;
    match args.json {
        true => say::out(as_json(&inspection)),
        false => lines(&inspection).iter().for_each(say::out),
    }
    Ok(0)
}

fn lines(inspection: &Inspection) -> Vec<String> {
    let disk = format!("{} in the store, {} beside it", human(inspection.store_bytes), human(inspection.folder_bytes));
    let mut lines = vec![
        line("run", &inspection.run.display().to_string()),
        line("state", &standing(inspection)),
        line("disk", &disk),
    ];
    lines.extend(volumes(inspection));
    if let Some(last) = &inspection.last {
        lines.push(line("last line", &format!("step {}, loss {:.4}", last.step, last.loss)));
    }
    if let Some(description) = &inspection.description {
        let identity = &description.identity;
        lines.push(line("store", &format!("{}, format version {}", identity.uuid, identity.format_version)));
        lines.push(line("commit", &description.commit.to_string()));
        for (volume, ledger) in description.volumes.iter().zip(&identity.ledger) {
            let (read, written) = (human(ledger.read_bytes), human(ledger.write_bytes));
            let path = volume.path.display();
            let text = format!("{read} read, {written} written over the store's life, to this commit; {path}");
            lines.push(line("ledger", &text));
        }
        for region in &description.regions {
            let size = format!("{} pages of {}", count(region.pages.into()), human(region.page_bytes.into()));
            lines.push(line(
                "region",
                &format!("{:<6} {:?}, {size}, {}", region.name, region.kind, human(region.bytes())),
            ));
        }
    }
    if let Some(note) = &inspection.note {
        let fields = serde_json::to_value(note).expect("a note holds only numbers and text");
        for (name, value) in fields.as_object().into_iter().flatten() {
            lines.push(line("note", &format!("{name} = {value}")));
        }
    }
    let settings = serde_json::to_value(&inspection.settings).expect("settings hold only numbers, text and lists");
    for (name, value) in settings.as_object().into_iter().flatten() {
        lines.push(line("setting", &format!("{name} = {value}")));
    }
    lines
}

/// A line for each volume; only where it lies if the store could not be read.
fn volumes(inspection: &Inspection) -> Vec<String> {
    let Some(description) = &inspection.description else {
        return inspection.stores.iter().map(|store| line("volume", &store.display().to_string())).collect();
    };
    let shown = |volume: &mt_engine::Volume| {
        let access = if volume.is_direct { "direct I/O" } else { "no direct I/O" };
        line("volume", &format!("{}, {} reserved, {access}", volume.path.display(), human(volume.reserved_bytes)))
    };
    description.volumes.iter().map(shown).collect()
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
    let volumes: Vec<Value> = match description {
        Some(description) => description
            .volumes
            .iter()
            .zip(&description.identity.ledger)
            .map(|(volume, ledger)| {
                json!({"path": volume.path, "reserved_bytes": volume.reserved_bytes, "direct_io": volume.is_direct,
                    "read_bytes": ledger.read_bytes, "written_bytes": ledger.write_bytes})
            })
            .collect(),
        None => inspection.stores.iter().map(|store| json!({"path": store})).collect(),
    };
    json!({
        "run": inspection.run,
        "state": standing(inspection),
        "volumes": volumes,
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
