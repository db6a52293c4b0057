//! Folders whose files do not belong together: short, missing and stale shards, other formats, and their sound twins.

use super::super::Source;
use super::super::dtype::Dtype;
use super::{Draft, assert_says, config_folder, model, read_all, refusal, shard_name, single_folder};
use crate::model::{Manifest, ModelConfig};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

const INDEX: &str = "model.safetensors.index.json";

fn three_shards() -> (ModelConfig, Manifest, Draft, TempDir) {
    let (config, manifest) = model(json!({}));
    let draft = Draft::new(&manifest, |_| Dtype::F32);
    let dir = config_folder(&config);
    draft.write_shards(dir.path(), 3);
    (config, manifest, draft, dir)
}

fn open(dir: &Path, config: &ModelConfig, manifest: &Manifest) -> crate::error::Result<Source> {
    Source::open(dir, config, manifest, 0)
}

fn edit_index(dir: &Path, edit: impl FnOnce(&mut serde_json::Map<String, Value>)) {
    let path = dir.join(INDEX);
    let mut index: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    edit(index.as_object_mut().unwrap());
    std::fs::write(&path, index.to_string()).unwrap();
}

#[test]
fn shards_are_read_as_one_file_is() {
    let (config, manifest, draft, dir) = three_shards();
    let source = open(dir.path(), &config, &manifest).unwrap();
    assert_eq!(source.notices(), [""; 0]);
    let values = read_all(&source, &manifest);
    let single = single_folder(&config, &draft);
    assert!(values == read_all(&open(single.path(), &config, &manifest).unwrap(), &manifest));
    for name in values.keys() {
        assert!(values[name] == draft.values(name), "{name}");
    }
}

#[test]
fn short_and_long_shards_are_refused_with_byte_counts() {
    let (config, manifest, _, dir) = three_shards();
    let shard = dir.path().join(shard_name(1, 3));
    let sound = std::fs::read(&shard).unwrap();
    let bytes = sound.len();
    std::fs::write(&shard, &sound[..bytes - 4_096]).unwrap();
    let text = refusal(open(dir.path(), &config, &manifest));
    assert_says(&text, &[&shard_name(1, 3), &format!("{bytes} bytes"), &format!("{} bytes", bytes - 4_096)]);
    std::fs::write(&shard, [&sound[..], &[0; 100]].concat()).unwrap();
    let text = refusal(open(dir.path(), &config, &manifest));
    assert_says(&text, &[&shard_name(1, 3), &format!("{bytes} bytes"), &format!("{} bytes", bytes + 100)]);
    std::fs::write(&shard, &sound).unwrap();
    open(dir.path(), &config, &manifest).unwrap();
}

#[test]
fn missing_shards_are_refused_by_name() {
    let (config, manifest, _, dir) = three_shards();
    std::fs::remove_file(dir.path().join(shard_name(2, 3))).unwrap();
    assert_says(&refusal(open(dir.path(), &config, &manifest)), &[&shard_name(2, 3), "no such file"]);
    // Without the index nothing says that shards are all there.
    std::fs::remove_file(dir.path().join(INDEX)).unwrap();
    assert_says(&refusal(open(dir.path(), &config, &manifest)), &[INDEX, &shard_name(0, 3)]);
}

#[test]
fn an_index_that_the_shards_contradict_is_refused() {
    let (config, manifest, draft, dir) = three_shards();
    let (first, last) = (&draft.tensors[0].name, &draft.tensors.last().unwrap().name);
    let sound = std::fs::read(dir.path().join(INDEX)).unwrap();
    let refused = |says: &[&str], edit: &dyn Fn(&mut Value)| {
        std::fs::write(dir.path().join(INDEX), &sound).unwrap();
        edit_index(dir.path(), |index| edit(&mut index["weight_map"]));
        assert_says(&refusal(open(dir.path(), &config, &manifest)), says);
    };
    refused(&[first, &shard_name(1, 3)], &|map| map[first] = shard_name(1, 3).into());
    refused(&["model.extra.weight", &shard_name(0, 3)], &|map| map["model.extra.weight"] = shard_name(0, 3).into());
    refused(&[last, &shard_name(2, 3)], &|map| _ = map.as_object_mut().unwrap().remove(last));
    for bad in ["../other.safetensors", "/etc/passwd", "sub/model.safetensors", "..", ""] {
        refused(&[first, "a file name"], &|map| map[first] = bad.into());
    }
    refused(&["weight_map"], &|map| *map = json!([1]));
    refused(&["weight_map"], &|map| map[first] = json!(1));
    let text = String::from_utf8(sound.clone()).unwrap();
    let twice = text.replace("\"weight_map\":{", &format!("\"weight_map\":{{\"{first}\":\"{}\",", shard_name(0, 3)));
    std::fs::write(dir.path().join(INDEX), twice).unwrap();
    assert_says(&refusal(open(dir.path(), &config, &manifest)), &["weight_map", first, "twice"]);
    std::fs::write(dir.path().join(INDEX), &sound[..sound.len() / 2]).unwrap();
    assert_says(&refusal(open(dir.path(), &config, &manifest)), &["weight_map"]);
    // A length that nobody means costs nothing.
    std::fs::File::create(dir.path().join(INDEX)).unwrap().set_len(1 << 30).unwrap();
    assert_says(&refusal(open(dir.path(), &config, &manifest)), &[INDEX, "1073741824 bytes"]);
    std::fs::write(dir.path().join(INDEX), &sound).unwrap();
    open(dir.path(), &config, &manifest).unwrap();
}

#[test]
fn a_wrong_total_is_said_and_changes_nothing() {
    let (config, manifest, draft, dir) = three_shards();
    edit_index(dir.path(), |index| index["metadata"]["total_size"] = json!(1));
    let source = open(dir.path(), &config, &manifest).unwrap();
    assert_says(&source.notices().join("\n"), &["total_size says 1 bytes"]);
    assert!(read_all(&source, &manifest)["model.norm.weight"] == draft.values("model.norm.weight"));
    edit_index(dir.path(), |index| _ = index.remove("metadata"));
    assert_eq!(open(dir.path(), &config, &manifest).unwrap().notices(), [""; 0]);
}

#[test]
fn the_index_wins_over_stray_files() {
    let (config, manifest, draft, dir) = three_shards();
    let mut stray = draft.clone();
    stray.tensors.iter_mut().for_each(|t| t.bytes.fill(0));
    std::fs::write(dir.path().join("model.safetensors"), stray.bytes()).unwrap();
    std::fs::write(dir.path().join("model-00004-of-00004.safetensors"), b"anything").unwrap();
    let source = open(dir.path(), &config, &manifest).unwrap();
    assert_says(
        &source.notices().join("\n"),
        &["model.safetensors: not read", "model-00004-of-00004.safetensors: not"],
    );
    for (name, values) in read_all(&source, &manifest) {
        assert!(values == draft.values(&name), "{name}");
    }
}

#[test]
fn other_formats_are_refused_by_name_and_no_weights_mean_a_fresh_start() {
    let (config, manifest) = model(json!({}));
    for foreign in ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "model.gguf", "tf_model.h5"] {
        let dir = config_folder(&config);
        std::fs::write(dir.path().join(foreign), b"\x80\x02}").unwrap();
        assert_says(&refusal(open(dir.path(), &config, &manifest)), &[foreign, "safetensors"]);
        // Beside weights that are read it does not matter.
        std::fs::write(dir.path().join("model.safetensors"), Draft::new(&manifest, |_| Dtype::F32).bytes()).unwrap();
        assert_eq!(open(dir.path(), &config, &manifest).unwrap().record().seed, None);
    }
    let dir = config_folder(&config);
    std::fs::write(dir.path().join("tokenizer.json"), b"{}").unwrap();
    assert_eq!(Source::open(dir.path(), &config, &manifest, 5).unwrap().record().seed, Some(5));
    let gone = dir.path().join("none");
    assert_eq!(open(&gone, &config, &manifest).unwrap_err().exit_code(), 2);
}

#[test]
fn a_renamed_pickle_is_refused() {
    let (config, manifest) = model(json!({}));
    let dir = config_folder(&config);
    std::fs::write(dir.path().join("model.safetensors"), [b"PK\x03\x04\x00\x00\x08\x08", &[0; 4_096][..]].concat())
        .unwrap();
    assert_says(&refusal(open(dir.path(), &config, &manifest)), &["model.safetensors", "pickle"]);
}
