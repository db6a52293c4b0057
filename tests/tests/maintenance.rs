//! `mt verify` and `mt inspect`, and what both say of stores that are damaged or of a newer version.

use mt_tests::command::Place;
use mt_tests::small::{self, Normal, Small};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use twox_hash::XxHash3_64;

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
const BLOCK: usize = 4096;

/// A folder with a run `r` of `steps` steps of 40, which commits every step.
fn place(steps: u64) -> Place {
    let place = Place::new(MT);
    place.model("m", &Small::m0(1));
    place.write("t.txt", small::text(1, 20_000));
    let done = place.run(&format!(
        "train --model m --data t.txt --seq-len 32 --batch 4 --lr 1e-3 --warmup 2 --threads 2 --ram 24MiB \
         --checkpoint-every 1 --steps 40 --stop-at {steps} --run r"
    ));
    assert_eq!(done.code, Some(130), "{done}");
    place
}

fn inspected(place: &Place) -> Value {
    serde_json::from_str(place.ok("inspect r --json").out.trim()).expect("JSON")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn inspect_shows_what_a_store_holds() {
    let place = place(3);
    let (text, json) = (place.ok("inspect r").out, inspected(&place));
    let record: Value = serde_json::from_str(&place.read("r/run.json")).expect("JSON");
    assert_eq!(json["uuid"], record["uuid"]);
    assert_eq!(number(&json["commit"]), 3, "commits 0 to 3");
    let note = &json["note"];
    assert_eq!((number(&note["step"]), number(&note["rows_taken"]), number(&note["total_steps"])), (3, 12, 40));
    let regions = json["regions"].as_array().expect("a list");
    let names: Vec<&str> = regions.iter().filter_map(|region| region["name"].as_str()).collect();
    assert_eq!(names[..5], ["hi", "lo", "m", "v", "grad"]);
    for (region, kind) in
        regions.iter().zip(["Checkpointed", "Checkpointed", "Checkpointed", "Checkpointed", "Scratch"])
    {
        assert_eq!(region["kind"], kind);
        assert!(number(&region["pages"]) > 0 && number(&region["page_bytes"]).is_multiple_of(4096), "{region}");
    }
    let volume = &json["volumes"][0];
    assert_eq!(volume["path"], "r/store");
    assert!(number(&volume["reserved_bytes"]) >= place.bytes("r/store"), "{volume}");
    assert!(volume["direct_io"].is_boolean());

    let lines: Vec<&str> = text.lines().collect();
    let has = |label: &str, parts: &[&str]| {
        let found = lines.iter().filter(|line| line.starts_with(label));
        assert!(found.clone().any(|line| parts.iter().all(|part| line.contains(part))), "{label} {parts:?}: {text}");
    };
    has("store", &[record["uuid"].as_str().expect("an id"), "format version"]);
    has("commit", &["3"]);
    has("ledger", &["read", "written"]);
    has("volume", &["r/store", "reserved", "direct I/O"]);
    has("region", &["hi", "Checkpointed", "pages of"]);
    has("region", &["grad", "Scratch"]);
    has("note", &["step = 3"]);
    has("note", &["tokens_digest"]);
    has("setting", &["seq-len = 32"]);
}

#[test]
fn the_ledger_grows_with_every_resume_by_what_was_written() {
    let place = place(2);
    let ledger =
        |json: &Value| (number(&json["volumes"][0]["read_bytes"]), number(&json["volumes"][0]["written_bytes"]));
    let mut before = ledger(&inspected(&place));
    let steps = |first: usize| -> (u64, u64) {
        let lines = &place.metrics("r")[first..];
        let sum = |key: &str| lines.iter().map(|line| number(&line[key])).sum();
        (sum("disk_read_bytes"), sum("disk_write_bytes"))
    };
    let imported = before.1 - steps(0).1;
    assert!(imported > place.bytes("r/store") / 24, "the import is in it: {imported} bytes");
    for stop in [4, 5, 9] {
        let done = place.metrics("r").len();
        let resumed = place.run(&format!("resume r --stop-at {stop} --json"));
        assert_eq!(resumed.code, Some(130), "{resumed}");
        let after = ledger(&inspected(&place));
        let moved = steps(done);
        assert!(after.0 >= before.0 + moved.0 && after.1 >= before.1 + moved.1, "{before:?} {moved:?} {after:?}");
        // Beside the steps there is the commit at the stop, which is of the same kind.
        assert!(after.1 <= before.1 + 2 * moved.1 + (4 << 20), "{before:?} {moved:?} {after:?}");
        before = after;
    }
}

/// Writes a superblock's version with the checksum that belongs to it.
fn set_version(volume: &Path, version: u32) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(volume).expect("the volume");
    for slot in 0..4 {
        let mut block = vec![0; BLOCK];
        file.read_exact_at(&mut block, slot * BLOCK as u64).expect("a superblock");
        block[8..12].copy_from_slice(&version.to_le_bytes());
        let sum = XxHash3_64::oneshot(&block[..BLOCK - 8]);
        block[BLOCK - 8..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&block, slot * BLOCK as u64).expect("a superblock");
    }
}

#[test]
fn a_store_of_a_newer_format_is_refused_by_every_command() {
    let place = place(2);
    let version = number(&inspected(&place)["format_version"]) as u32;
    let volume = place.path("r/store/volume.mt");
    set_version(&volume, version + 1);
    let before = std::fs::read(&volume).expect("the volume");
    let said = format!("store format {} is newer than {version}", version + 1);
    for words in ["resume r", "verify r", "export r --out o", "rm r --yes"] {
        place.refused(words, 2, &[&said, "volume.mt", "use a newer one"]);
    }
    assert!(place.ok("inspect r").out.contains(&said));
    assert!(before == std::fs::read(&volume).expect("the volume"), "nothing has changed it");
    set_version(&volume, version);
    place.ok("verify r");
    place.ok("resume r --stop-at 40");
}

#[test]
fn verify_names_every_bad_page() {
    let place = place(4);
    assert!(place.ok("verify r").out.contains("every checksum as recorded"));
    let shown: Value = serde_json::from_str(place.ok("verify r --json").out.trim()).expect("JSON");
    assert_eq!((number(&shown["step"]), shown["corrupt"].as_array().map(Vec::len)), (4, Some(0)));
    assert!(number(&shown["bytes"]) > 1 << 20 && shown["seconds"].as_f64().is_some_and(|s| s > 0.0), "{shown}");
    let pages = number(&shown["pages"]);
    let all: u64 = inspected(&place)["regions"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|region| region["kind"] == "Checkpointed")
        .map(|region| number(&region["pages"]))
        .sum();
    assert_eq!(pages, all);

    // Every block behind the records: each page's two extents among them.
    let volume = std::fs::OpenOptions::new().read(true).write(true).open(place.path("r/store/volume.mt"));
    let volume = volume.expect("the volume");
    let length = volume.metadata().expect("metadata").len();
    for at in (length / 16 / BLOCK as u64 * BLOCK as u64..length).step_by(BLOCK) {
        volume.write_all_at(&[0x5a; 3], at + 77).expect("other bytes");
    }
    let shown = place.run("verify r --json");
    assert_eq!(shown.code, Some(4), "{shown}");
    let json: Value = serde_json::from_str(shown.out.lines().next().expect("a line")).expect("JSON");
    let corrupt = json["corrupt"].as_array().expect("a list");
    assert!(corrupt.len() as u64 > all / 2 && number(&json["pages"]) == all - corrupt.len() as u64, "{shown}");
    for region in ["hi", "lo", "m", "v"] {
        let of_region = format!("of region {region} ");
        assert!(corrupt.iter().any(|line| line.as_str().is_some_and(|line| line.contains(&of_region))), "{shown}");
    }
    // For people the first of them and a count.
    let done = place.refused("verify r", 4, &["page", "of region hi", "restore from an export", "--json"]);
    let lines: Vec<&str> = done.err.lines().collect();
    assert!(lines.len() < 60 && lines[0].starts_with("mt: page "), "{done}");
    assert!(lines[lines.len() - 1].contains(&format!("{} pages", corrupt.len())), "{done}");
}

/// A bit anywhere in a volume: the page, the record or nothing is named, or the other copy serves; never other numbers.
#[test]
fn a_flipped_bit_anywhere_is_named_or_does_not_matter() {
    let place = place(3);
    let weights = place.weights("r");
    let volume = place.path("r/store/volume.mt");
    let content = std::fs::read(&volume).expect("the volume");
    let mut random = Normal::new(15);
    let file = std::fs::OpenOptions::new().write(true).open(&volume).expect("the volume");
    // The records densely, the pages here and there.
    let records = (0..content.len() / 8).step_by(content.len() / 8 / 24).map(|at| at + random.below(64));
    let records: Vec<usize> = records.collect();
    let pages: Vec<usize> = (0..24).map(|_| random.below(content.len())).collect();
    let (mut named, mut harmless) = (0, 0);
    for at in records.into_iter().chain(pages) {
        let flipped = content[at] ^ (1 << random.below(8));
        file.write_all_at(&[flipped], at as u64).expect("a flipped bit");
        let done = place.run("verify r");
        match done.code {
            Some(0) => {
                assert!(place.weights("r").bits() == weights.bits(), "byte {at}");
                harmless += 1;
            }
            Some(4) => {
                let says = |part: &str| done.err.contains(part);
                let is_page = says("page") && says("of region") && says("at commit 3");
                let is_record = says("volume.mt") && (says("of commit 3") || says("superblock") || says("catalogue"));
                assert!((is_page || is_record) && !says("panicked"), "byte {at}: {done}");
                named += 1;
            }
            _ => panic!("byte {at}: {done}"),
        }
        file.write_all_at(&content[at..=at], at as u64).expect("the bit as it was");
    }
    assert!(named >= 10 && harmless >= 5, "{named} named, {harmless} harmless");
    place.ok("verify r");
}
