//! What a run says of itself afterwards: `--trace`, `mt report`, `processes.jsonl`, and the line about a plan that was
//! not kept.

use mt_tests::command::Place;
use mt_tests::small::{self, Small};
use mt_trainer::profile::{MachineProfile, Origin};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");

/// Flags of a short run on `place`.
const RUN: &str = "--model m --data t.txt --seq-len 32 --batch 4 --lr 1e-3 --warmup 2 --threads 2 --no-shuffle";

fn place() -> Place {
    let place = Place::new(MT);
    place.model("m", &Small::with(1, serde_json::json!({"hidden_size": 256, "intermediate_size": 704})));
    place.write("t.txt", small::text(1, 20_000));
    place
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {value}"))
}

/// Flags that leave room for about a third of the pages, beside what a trace takes.
fn tight(place: &Place, words: &str) -> String {
    let plan = |ram: &str| -> Value {
        let out = place.ok(&format!("plan {words} --ram {ram} --json")).out;
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{out}: {e}"))
    };
    let all = plan("1GiB");
    let beside = number(&all, "/limits/ram_program") + number(&all, "/limits/ram_workspace");
    let trace = mt_engine::Recorder::bytes(mt_trainer::run::TRACE_ROOM);
    format!("{words} --ram {}", beside + number(&all, "/limits/ram_pages") / 3 + trace)
}

/// The lines of a run's history.
fn processes(place: &Place, run: &str) -> Vec<Value> {
    let text = place.read(&format!("{run}/processes.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

/// A trace that was checked: its tracks by number, and its slices.
struct Trace {
    tracks: BTreeMap<u64, String>,
    slices: Vec<Value>,
}

impl Trace {
    /// Reads a file: it parses, every slice is on a track that has a name, and the slices of each track nest.
    fn read(place: &Place, name: &str) -> Trace {
        let whole: Value = serde_json::from_str(&place.read(name)).expect("a trace is JSON");
        let events = whole["traceEvents"].as_array().expect("a list of events");
        let track = |event: &Value| {
            assert_eq!(number(event, "/pid"), 1, "one process");
            number(event, "/tid")
        };
        let names = events.iter().filter(|event| event["name"] == "thread_name");
        let tracks: BTreeMap<_, _> =
            names.map(|event| (track(event), event["args"]["name"].as_str().expect("a name").to_owned())).collect();
        let slices: Vec<Value> = events.iter().filter(|event| event["ph"] == "X").cloned().collect();
        let mut by_track: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
        for slice in &slices {
            let (ts, dur) = (slice["ts"].as_f64().expect("a time"), slice["dur"].as_f64().expect("a time"));
            assert!(ts >= 0.0 && dur >= 0.0 && tracks.contains_key(&track(slice)), "{slice}");
            by_track.entry(track(slice)).or_default().push((ts, ts + dur));
        }
        for (track, mut spans) in by_track {
            spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
            let mut open: Vec<f64> = Vec::new();
            for (begin, end) in spans {
                // Whole nanoseconds in microseconds: begin and length are each off by less than one.
                while open.last().is_some_and(|last| *last <= begin + 2e-3) {
                    open.pop();
                }
                let nests = open.last().is_none_or(|last| end <= last + 2e-3);
                assert!(nests, "{} of {track:?} do not nest at {begin}", tracks[&track]);
                open.push(end);
            }
        }
        Trace { tracks, slices }
    }

    /// Slices on tracks of a side whose names begin so.
    fn on(&self, side: &str, track: &str) -> Vec<&Value> {
        let name = format!("{side}{track}");
        self.slices.iter().filter(|slice| self.tracks[&number(slice, "/tid")].starts_with(&name)).collect()
    }

    fn bytes(&self, side: &str, track: &str) -> u64 {
        self.on(side, track)
            .iter()
            .filter_map(|slice| slice.pointer("/args/bytes"))
            .map(|b| b.as_u64().expect("n"))
            .sum()
    }
}

/// What the names of a side's tracks begin with.
const MEASURED: &str = "";
const PREDICTED: &str = "plan: ";

#[test]
fn a_trace_of_all_steps_has_every_byte_and_both_sides() {
    let place = place();
    // Rates that nobody measures: the plan is the same in every run.
    let words = tight(&place, &format!("{RUN} --profile assumed --steps 4 --checkpoint-every 1 --page 2048"));
    let done = place.ok(&format!("train {words} --run r --trace t.json --trace-steps 1-4 --json"));
    let trace = Trace::read(&place, "t.json");
    for side in [MEASURED, PREDICTED] {
        let steps: Vec<&Value> = trace.on(side, "steps").into_iter().map(|slice| &slice["name"]).collect();
        let mut names = vec!["step 1", "step 2", "step 3", "step 4"];
        names.extend((side == MEASURED).then_some("last update and commit"));
        assert_eq!(steps, names);
        let said = |track: &str, part: &str| {
            let found = trace.on(side, track);
            assert!(found.iter().any(|s| s["name"].as_str().expect("a name").contains(part)), "{side}{track} {part}");
        };
        said("computation", "layer 1 forward, micro-batch 0");
        said("computation", "layer 0 backward, micro-batch 0");
        said("updates", "update layer 1");
        said("waits", "wait for ");
    }
    let read = trace.on(MEASURED, "disk 0 reads");
    assert!(read.iter().any(|slice| slice["name"] == "m of layer 1"), "{read:?}");
    assert!(read.iter().any(|slice| slice["args"]["for"].as_str().is_some_and(|name| name.starts_with("update"))));

    // Four steps of the plan, with what they move. A transfer counts to the sweep in which it ends: where sweeps are
    // not quite alike, the one that is drawn may end with a fetch under way that it did not begin with.
    let started: Value = serde_json::from_str(done.out.lines().next().expect("a first line")).expect("JSON");
    for (key, track) in [("disk_read_bytes", "disk 0 reads"), ("disk_write_bytes", "disk 0 writes")] {
        let said = number(&started, &format!("/predicted/{key}"));
        let bytes = |slice: &&Value| slice.pointer("/args/bytes").and_then(Value::as_u64);
        let largest = trace.on(PREDICTED, track).iter().filter_map(bytes).max().expect("transfers");
        let found = trace.bytes(PREDICTED, track);
        assert!(found.abs_diff(4 * said) <= 4 * largest && 10 * largest < said, "{key}: {found} of four times {said}");
    }

    // The counters, over the steps' lines and what comes after the last: in the history, in the summary, in the trace.
    let history = processes(&place, "r");
    assert_eq!((history.len(), &history[1]["ending"]), (2, &Value::from("done")));
    let summary: Value = serde_json::from_str(done.out.lines().last().expect("a last line")).expect("JSON");
    let sum = |key: &str| place.metrics("r").iter().map(|line| number(line, &format!("/{key}"))).sum::<u64>();
    for (key, in_trace) in [
        ("disk_read_bytes", trace.bytes(MEASURED, "disk 0 reads")),
        ("disk_write_bytes", trace.bytes(MEASURED, "disk 0 writes") + trace.bytes(MEASURED, "disk 0 commits")),
    ] {
        let all = sum(key) + number(&history[1], &format!("/last/{key}"));
        assert_eq!((all, in_trace), (number(&summary, &format!("/{key}")), all), "{key}");
    }
    let commits = sum("commit_bytes") + number(&history[1], "/last/commit_bytes");
    assert_eq!(commits, number(&summary, "/commit_bytes"));
    assert!(number(&history[1], "/last/commit_bytes") > 0, "the last commit is in no step's line");

    place.ok(&format!("train {words} --run plain"));
    assert_eq!(place.losses("r"), place.losses("plain"));
}

#[test]
fn a_trace_is_written_at_a_stop_and_on_an_error() {
    let place = place();
    let steps = |name: &str| -> Vec<String> {
        let trace = Trace::read(&place, name);
        trace.on(MEASURED, "steps").iter().map(|s| s["name"].as_str().expect("a name").to_owned()).collect()
    };
    let stopped = place.run(&format!("train {RUN} --ram 64MiB --steps 9 --stop-at 2 --run r --trace stop.json"));
    assert_eq!(stopped.code, Some(130), "{stopped}");
    // The third step, or the last where there are fewer.
    assert_eq!(steps("stop.json"), ["step 2", "last update and commit"]);
    assert!(stopped.err.contains("trace of step 2: stop.json"), "{stopped}");
    place.ok("resume r --trace later.json --trace-steps 2-3");
    assert_eq!(steps("later.json"), ["step 4", "step 5"]);

    let words = RUN.replace("--lr 1e-3", "--lr 1e30");
    let failed = place.run(&format!("train {words} --ram 64MiB --steps 9 --run f --trace-steps 1-9 --trace f.json"));
    assert_eq!(failed.code, Some(5), "{failed}");
    assert!(!steps("f.json").is_empty(), "{failed}");
    let ending = processes(&place, "f")[1]["ending"].as_str().expect("text").to_owned();
    assert!(failed.err.contains(&ending), "{ending}: {failed}");

    // What is refused leaves no file.
    place.refused(&format!("train {RUN} --ram 1MiB --run n --trace none.json"), 3, &["--ram"]);
    place.refused(&format!("train {RUN} --ram 64MiB --run n --trace missing/none.json"), 2, &["missing/none.json"]);
    assert!(!place.path("none.json").exists() && !place.path("none.json.new").exists());
    // A trace may be made anew; any other file is not lost.
    place.ok(&format!("train {RUN} --ram 64MiB --steps 1 --run again --trace f.json"));
    let kept = std::fs::read(place.path("r/run.json")).expect("a run's description");
    place.refused(&format!("train {RUN} --ram 64MiB --run n --trace r/run.json"), 2, &["r/run.json", "another file"]);
    assert_eq!(std::fs::read(place.path("r/run.json")).expect("it is there"), kept);
}

#[test]
fn a_report_has_the_runs_numbers_and_needs_nothing_else() {
    let place = place();
    let words = tight(&place, &format!("{RUN} --steps 6 --checkpoint-every 1 --page 2048"));
    assert_eq!(place.run(&format!("train {words} --stop-at 4 --run r")).code, Some(130));
    let middle = place.ok("report r");
    assert!(middle.out.contains("r/report.html") && place.read("r/report.html").contains("step 4 of 6"), "{middle}");
    place.ok("resume r");
    place.ok("report r --out page.html --tbw 600");
    let page = place.read("page.html");
    let lines = place.metrics("r");
    let loss = |index: usize| format!("{:.4}", lines[index]["loss"].as_f64().expect("a loss"));
    let written: u64 = lines.iter().map(|line| number(line, "/disk_write_bytes")).sum::<u64>()
        + processes(&place, "r").iter().filter_map(|p| p.pointer("/last/disk_write_bytes")?.as_u64()).sum::<u64>();
    for part in [
        loss(0),
        loss(5),
        mt_trainer::run::size::human(written),
        "resumed after step 4".to_owned(),
        "optimizer".to_owned(),
        "waits for disk reads".to_owned(),
        "measured / predicted".to_owned(),
        "of 600 TB".to_owned(),
        "<dt>seq-len</dt><dd>32</dd>".to_owned(),
        "1 to 4".to_owned(),
        "5 to 6".to_owned(),
        "Memory bandwidth is no cause of its own".to_owned(),
        "caches do not hold them: it moved".to_owned(),
    ] {
        assert!(page.contains(&part), "no {part} in the page");
    }
    // The tile and the bar of the parts are the same number.
    let behind = |mark: &str| page.split_once(mark).map(|(_, rest)| rest.split('<').next().unwrap_or_default());
    let step = behind("a step takes, the mean</span><b>").expect("a tile");
    assert!(page.contains(&format!("</div><b>{step}</b><span>predicted</span>")), "the parts come to {step}");
    assert!(!page.contains("not recorded"), "everything was recorded");
    for other in ["http", "src=", "href=", "url(", "<script", "@import"] {
        assert!(!page.contains(other), "the page needs {other}");
    }
    let opened: BTreeSet<&str> = page.split('<').filter_map(|tag| tag.split([' ', '>', '/']).next()).collect();
    for tag in opened.iter().filter(|tag| !matches!(**tag, "" | "!doctype" | "meta" | "line" | "path" | "rect")) {
        let count = |text: &str| page.matches(text).count();
        let begun = count(&format!("<{tag}>")) + count(&format!("<{tag} "));
        assert_eq!(begun, count(&format!("</{tag}>")), "<{tag}> is not closed");
    }
    place.refused("report none", 2, &["none"]);
}

/// No GPU is needed to show what one did: the steps' lines say it.
#[test]
fn a_report_of_steps_on_a_gpu_tells_the_gpus_time() {
    let place = place();
    place.ok(&format!("train {RUN} --ram 1GiB --steps 4 --run r"));
    let on_gpu = |mut line: Value| {
        let seconds = line["seconds"].as_f64().expect("a time");
        for (key, share) in [
            ("gpu_forward_seconds", 0.25),
            ("gpu_loss_seconds", 0.0625),
            ("gpu_backward_seconds", 0.25),
            ("gpu_update_seconds", 0.0625),
            ("gpu_link_wait_seconds", 0.125),
            ("gpu_processor_wait_seconds", 0.125),
            ("gpu_busy_seconds", 0.625),
            ("upload_seconds", 0.5),
            ("download_seconds", 0.25),
        ] {
            line[key] = (share * seconds).into();
        }
        line["gpu_busy_share"] = 0.625.into();
        (line["upload_bytes"], line["download_bytes"]) = ((3u64 << 20).into(), (5u64 << 20).into());
        format!("{line}\n")
    };
    let lines: String = place.metrics("r").into_iter().map(on_gpu).collect();
    place.write("r/metrics.jsonl", lines);
    place.ok("report r");
    let page = place.read("r/report.html");
    for part in [
        "62.5%",
        "backward and recompute",
        "waits for the link",
        "waits for the processor",
        "RAM to VRAM",
        "3.00 MiB",
        "12.0 MiB",
        "20.0 MiB",
    ] {
        assert!(page.contains(part), "no {part} in the page");
    }
    assert!(!page.contains("waits for disk reads") && !page.contains("not recorded"));
}

#[test]
fn a_report_of_an_old_run_says_what_was_not_recorded() {
    let place = place();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden-store/1/run");
    std::fs::create_dir_all(place.path("old/store")).expect("a folder");
    for name in ["metrics.jsonl", "settings.toml", "run.json", "source.json", "store/volume.mt"] {
        std::fs::copy(from.join(name), place.path("old").join(name)).expect("a file of the old run");
    }
    place.ok("report old");
    let page = place.read("old/report.html");
    let last = place.metrics("old").pop().expect("a line")["loss"].as_f64().expect("a loss");
    assert!(page.contains("not recorded") && page.contains(&format!("{last:.4}")), "{page}");
}

/// Multiplies every rate of a profile.
fn faster(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match value.as_f64() {
            Some(rate) if name.ends_with("_per_s") => *value = (rate * 1e4).into(),
            _ => faster(value),
        }),
        Value::Array(values) => values.iter_mut().for_each(faster),
        _ => {}
    }
}

/// A profile of a machine that is far faster than any: the plan cannot be kept.
#[test]
fn a_plan_that_is_not_kept_is_said_once_with_its_reason() {
    let place = place();
    let profile = MachineProfile { origin: Origin::Probed, ..MachineProfile::assumed(2) };
    let mut fast: Value = serde_json::from_str(&profile.to_json()).expect("JSON");
    faster(&mut fast);
    place.write("fast.json", fast.to_string());
    let words = format!("{RUN} --ram 64MiB --steps 12");
    let done = place.ok(&format!("train {words} --run r --profile fast.json"));
    let said: Vec<&str> = done.err.lines().filter(|line| line.contains("the plan said")).collect();
    assert_eq!(said.len(), 1, "{done}");
    assert!(said[0].contains("a step takes") && said[0].contains("(+"), "{done}");
    let end: Vec<&str> = done.out.lines().filter(|line| line.starts_with("drift")).collect();
    assert!(end.len() == 1 && end[0].contains("the plan said"), "{done}");
    assert!(processes(&place, "r")[1]["drift"].as_str().is_some_and(|drift| end[0].contains(drift)), "{done}");
    place.ok("report r");
    assert!(place.read("r/report.html").contains("class=\"drift\""));
    // Rates that nobody measured are no news while it runs.
    let assumed = place.ok(&format!("train {words} --run a --profile assumed"));
    assert!(!assumed.err.contains("the plan said"), "{assumed}");
    assert_eq!(place.losses("r"), place.losses("a"));
}
