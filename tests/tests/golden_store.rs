//! Runs that earlier versions left behind, one for each version of the on-disk format, in `tests/golden-store/VERSION`:
//! this version opens them, finds what was recorded when they were written, and goes on with them.
//!
//! A new version of the format gets its own, written once with
//! `cargo test --release -p mt-tests --test golden_store -- --ignored`; what earlier versions wrote is never written
//! again.

use mt_tests::command::Place;
use mt_tests::small::{self, Small};
use mt_tests::tensors::Tensors;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
/// Steps of the run, and those that are in its last commit.
const STEPS: usize = 8;
const STOP: usize = 5;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden-store")
}

/// Copies files and folders.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the folder can be made");
    for entry in std::fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("the file can be copied");
        }
    }
}

fn inspected(place: &Place) -> Value {
    serde_json::from_str(place.ok("inspect run --json").out.trim()).expect("JSON")
}

/// A digest of each tensor's bits.
fn digests(weights: &Tensors) -> Value {
    let all = weights.bits();
    let of = |(name, (shape, bits)): (&&str, &(&[usize], Vec<u32>))| {
        let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        ((*name).to_owned(), format!("{shape:?} {:016x}", XxHash3_64::oneshot(&bytes)).into())
    };
    Value::Object(all.iter().map(of).collect())
}

/// What is recorded of a run: everything that its store says of itself, its weights, and its losses to the end.
fn found(place: &Place) -> Value {
    let shown = inspected(place);
    let told = |name: &str| (name.to_owned(), shown[name].clone());
    let mut all: Value = ["format_version", "uuid", "commit", "regions", "note"].map(told).into_iter().collect();
    let verified: Value = serde_json::from_str(place.ok("verify run --json").out.trim()).expect("JSON");
    all["pages"] = verified["pages"].clone();
    all["weights"] = digests(&place.weights("run"));
    place.ok("resume run");
    all["losses"] = place.losses("run").into();
    all
}

#[test]
fn runs_of_every_version_of_the_format_open_and_go_on() {
    let mut versions = 0;
    for entry in std::fs::read_dir(golden()).expect("the folder can be read") {
        let entry = entry.expect("an entry");
        if !entry.file_type().expect("a type").is_dir() {
            continue;
        }
        let place = Place::new(MT);
        copy(&entry.path().join("run"), &place.path("run"));
        let text = std::fs::read_to_string(entry.path().join("expected.json")).expect("the recorded numbers");
        let mut expected: Value = serde_json::from_str(&text).expect("JSON");
        let mut found = found(&place);
        assert_eq!(entry.file_name().to_str(), Some(expected["format_version"].to_string().as_str()));
        // Losses after the commit are computed here, so they may differ from those of another machine in the last bits.
        let (now, then) = (found["losses"].take(), expected["losses"].take());
        assert_eq!(found, expected);
        let (now, then) = (now.as_array().expect("a list"), then.as_array().expect("a list"));
        assert_eq!((now.len(), then.len(), &now[..STOP]), (STEPS, STEPS, &then[..STOP]));
        for (now, then) in now.iter().zip(then) {
            let (now, then) = (now.as_f64().expect("a loss"), then.as_f64().expect("a loss"));
            assert!((now / then - 1.0).abs() < 1e-5, "{now} instead of {then}");
        }
        versions += 1;
    }
    assert!(versions > 0, "there is a run of this version at least");
}

#[test]
#[ignore = "writes the run of the present version of the format, once"]
fn write_the_run_of_this_version() {
    let place = Place::new(MT);
    let model = json!({
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 256,
        "num_key_value_heads": 1, "tie_word_embeddings": true, "bos_token_id": null, "eos_token_id": null,
    });
    place.model("model", &Small::with(42, model));
    place.write("text", small::text(42, 4_000));
    let stopped = place.run(&format!(
        "train --model model --data text --seq-len 16 --batch 2 --lr 1e-2 --warmup 2 --threads 2 --ram 64MiB \
         --checkpoint-every 2 --steps {STEPS} --stop-at {STOP} --run run"
    ));
    assert_eq!(stopped.code, Some(130), "{stopped}");
    std::fs::remove_file(place.path("run/lock")).expect("the lock is a file");
    let version = inspected(&place)["format_version"].to_string();
    let target = golden().join(&version);
    assert!(!target.exists(), "{} is there already", target.display());
    copy(&place.path("run"), &target.join("run"));
    let expected = format!("{:#}\n", found(&place));
    std::fs::write(target.join("expected.json"), expected).expect("the numbers can be recorded");
}
