use super::*;
use crate::bench::args::{Cli, Command};
use clap::Parser;
use serde_json::Value;

/// Everything once, as briefly as it can be had.
const BRIEF: Effort = Effort {
    name: "quick",
    file_bytes: 64 << 20,
    pattern: Duration::from_millis(20),
    sweep: Duration::from_millis(10),
    blocks: &[64 << 10, 1 << 20],
    depths: &[1, 8],
    sweeps_writes: true,
    sustained: Duration::from_millis(500),
    syncs: 3,
    memory: Duration::from_millis(5),
    shapes: &["1.5b"],
};

fn args(words: &[&str]) -> Box<Io> {
    match Cli::try_parse_from(["mt-bench", "io"].iter().chain(words)).unwrap().command {
        Command::Io(args) => args,
        other => panic!("{other:?}"),
    }
}

/// Where a value does not have the form that a schema asks for; of the keywords that the published one uses.
fn broken(schema: &Value, root: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(path) = schema["$ref"].as_str() {
        let name = path.strip_prefix("#/$defs/").expect("definitions of the schema's own");
        return broken(&root["$defs"][name], root, value, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let best = any.iter().map(|one| broken(one, root, value, at)).min_by_key(Vec::len);
        return best.expect("some of them");
    }
    let mut out = Vec::new();
    if let Some(types) = schema.get("type") {
        let of = |name: &str| match name {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64() || value.is_i64(),
            "number" => value.is_number(),
            "null" => value.is_null(),
            other => panic!("{other}: no type"),
        };
        let names = types.as_array().cloned().unwrap_or_else(|| vec![types.clone()]);
        if !names.iter().any(|name| of(name.as_str().expect("a name"))) {
            return vec![format!("{at}: expected {types}, found {value}")];
        }
    }
    if schema.get("const").is_some_and(|only| only != value) {
        out.push(format!("{at}: expected {}, found {value}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|all| !all.contains(value)) {
        out.push(format!("{at}: expected one of {}, found {value}", schema["enum"]));
    }
    for (key, inner) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(key) {
            Some(property) => out.extend(broken(property, root, inner, &format!("{at}.{key}"))),
            None => out.push(format!("{at}.{key}: not in the schema")),
        }
    }
    for key in schema["required"].as_array().into_iter().flatten() {
        if value.get(key.as_str().expect("a name")).is_none() {
            out.push(format!("{at}: {key} is missing"));
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        out.extend(broken(&schema["items"], root, item, &format!("{at}[{index}]")));
    }
    out
}

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../io-report.schema.json")).unwrap()
}

#[test]
fn a_report_has_the_published_form_and_reads_back() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let paths = dirs.each_ref().map(|dir| dir.path().to_path_buf());
    let args = args(&[paths[0].to_str().unwrap(), paths[1].to_str().unwrap(), "--json", "-"]);
    let places = places(&args.paths).unwrap();
    let watch = Watch::new(1.0, true).unwrap();
    let report = everything(&args, Some(0), &BRIEF, &places, BRIEF.file_bytes, &watch).unwrap();
    assert_eq!(report.paths.len(), 3, "two, and both together");
    assert!(paths.iter().all(|path| std::fs::read_dir(path).unwrap().next().is_none()));

    let value: Value = serde_json::from_str(&report.to_json()).unwrap();
    let schema = schema();
    assert_eq!(broken(&schema, &schema, &value, "report"), Vec::<String>::new());
    let file = paths[0].join("report.json");
    std::fs::write(&file, report.to_json()).unwrap();
    assert_eq!(Report::read(&file).unwrap(), report);
    let (lines, _) = compare::compare(&file, &file).unwrap();
    assert!(lines.len() > 20 && lines.iter().any(|line| line.contains("1.000")), "{lines:?}");

    let lines = text::report(&report).join("\n");
    for part in
        ["file system", "overwrite", "both at once", "copying", "AdamW", "checksums", "GPU", "best reads", "1.5b"]
    {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    let page = html::page(&report);
    assert!(page.contains("<svg") && page.ends_with("</html>\n"));
    for outside in ["http://", "https://", "<script", "<link", "src=", "@import"] {
        assert!(!page.contains(outside), "the page needs no other: {outside}");
    }
}

#[test]
fn the_form_is_told_from_others() {
    let schema = schema();
    let wrong = |value: &Value| broken(&schema, &schema, value, "report").len();
    let point = serde_json::json!({"seconds": 1.0, "bytes": 2.0, "bytes_per_s": "3"});
    assert_eq!(broken(&schema["$defs"]["point"], &schema, &point, "point").len(), 1);
    let best = serde_json::json!({"block_bytes": 1.5, "depth": 2, "bytes_per_s": 3, "more": 1});
    assert_eq!(broken(&schema["$defs"]["best"], &schema, &best, "best").len(), 2);
    assert!(wrong(&serde_json::json!({"version": 2})) > 5);
    assert_eq!(wrong(&serde_json::json!([])), 1);
}

#[test]
fn no_more_than_was_agreed_to_is_taken() {
    let place = |source: &str, free_bytes| Place { source: source.into(), free_bytes, ..Place::default() };
    let bytes = |words: &[&str], places: &[Place]| file_bytes(&args(words), &QUICK, places, false);
    assert_eq!(bytes(&[], &[place("a", 100 << 30)]), Ok(QUICK.file_bytes));
    assert_eq!(bytes(&[], &[place("a", 1 << 30)]), Ok(192 << 20), "a fifth, in whole units");
    assert_eq!(bytes(&[], &[place("a", 1 << 30), place("a", 1 << 30)]), Ok(96 << 20), "both at once");
    assert_eq!(bytes(&["--size", "1GiB", "--yes"], &[place("a", 2 << 30)]), Ok(1 << 30));
    assert_eq!(bytes(&["--size", "1GiB"], &[place("a", 2 << 30)]).unwrap_err().code, 2, "nobody to ask");
    assert_eq!(bytes(&["--size", "3GiB", "--yes"], &[place("a", 2 << 30)]).unwrap_err().code, 3);
}
