//! Checkpoints that are broken, unusual or mixed (A01 to A06, A09), from outside: each refusal has its unbroken twin,
//! which trains, and the twin's first loss is the f64 reference's.

use mt_tests::command::{Finished, Place, byte_batch};
use mt_tests::forward::Reference;
use mt_tests::small::{self, Small};
use mt_tests::tensors::{self, Entry, Tensors};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const MT: &str = env!("CARGO_BIN_EXE_mt-under-test");
const RUN: &str = "train --data t.txt --seq-len 32 --batch 2 --lr 1e-3 --warmup 0 --no-shuffle";

fn place() -> Place {
    let place = Place::new(MT);
    place.write("t.txt", small::text(11, 4_000));
    place
}

/// Trains one step on the folder `name` and compares the loss with the reference of `config` and `weights`.
fn parity(place: &Place, name: &str, config: &Value, weights: &Tensors) {
    place.ok(&format!("{RUN} --model {name} --steps 1 --run {name}-run"));
    let text = std::fs::read(place.path("t.txt")).expect("the text");
    let expected = Reference::new(config, weights).loss(&byte_batch(&text, 0, 2, 32));
    let found = place.losses(&format!("{name}-run"))[0];
    assert!((found / expected - 1.0).abs() < 1e-5, "{name}: loss {found}, the reference has {expected}");
}

/// The folder `name` must be refused before anything is trained.
fn refused(place: &Place, name: &str, parts: &[&str]) -> Finished {
    let done = place.refused(&format!("{RUN} --model {name} --steps 1 --run {name}-run --export {name}-out"), 2, parts);
    assert!(place.metrics(&format!("{name}-run")).is_empty(), "nothing was trained");
    assert!(!place.path(&format!("{name}-out")).exists(), "nothing that looks like a result");
    done
}

#[test]
fn a01_the_tie_flag_and_the_head_must_agree() {
    let place = place();
    let tied = Small::with(1, json!({"tie_word_embeddings": true}));
    place.model("tied", &tied);
    parity(&place, "tied", &tied.config, &tied.tensors);
    let mut same = tied.clone();
    same.tensors.insert("lm_head.weight", &[512, 64], tied.tensors.values("model.embed_tokens.weight").to_vec());
    place.model("same", &same);
    parity(&place, "same", &tied.config, &tied.tensors);
    let mut other = same.clone();
    other.tensors.insert("lm_head.weight", &[512, 64], vec![0.25; 512 * 64]);
    place.model("other", &other);
    refused(&place, "other", &["lm_head.weight"]);
    let mut headless = Small::m0(1);
    headless.tensors.remove("lm_head.weight");
    place.model("headless", &headless);
    refused(&place, "headless", &["lm_head.weight"]);
}

/// M0 in three shards with an index, in the folder `name`.
fn shards(place: &Place, name: &str, model: &Small) {
    model.write_config(&place.path(name));
    tensors::write_shards(&place.path(name), &model.tensors.entries(), 3);
}

#[test]
fn a02_incomplete_or_stale_shards_are_refused() {
    let place = place();
    let model = Small::m0(1);
    let shard = |name: &str, n: usize| place.path(&format!("{name}/model-{n:05}-of-00003.safetensors"));
    shards(&place, "whole", &model);
    parity(&place, "whole", &model.config, &model.tensors);

    shards(&place, "cut", &model);
    let bytes = std::fs::read(shard("cut", 2)).expect("the shard");
    std::fs::write(shard("cut", 2), &bytes[..bytes.len() - 4_096]).expect("the shard is cut");
    refused(&place, "cut", &["model-00002-of-00003.safetensors", &(bytes.len() - 4_096).to_string()]);

    shards(&place, "long", &model);
    std::fs::write(shard("long", 2), [bytes.as_slice(), &[0; 100]].concat()).expect("the shard is lengthened");
    refused(&place, "long", &["model-00002-of-00003.safetensors", &(bytes.len() + 100).to_string()]);

    shards(&place, "gone", &model);
    std::fs::remove_file(shard("gone", 3)).expect("the shard is deleted");
    refused(&place, "gone", &["model-00003-of-00003.safetensors"]);

    shards(&place, "wrong", &model);
    let index = place.read("wrong/model.safetensors.index.json");
    let moved =
        index.replace("\"model.norm.weight\":\"model-00003-of-00003", "\"model.norm.weight\":\"model-00001-of-00003");
    assert_ne!(index, moved);
    place.write("wrong/model.safetensors.index.json", moved);
    refused(&place, "wrong", &["model.norm.weight", "model-00001-of-00003.safetensors"]);

    shards(&place, "stray", &model);
    tensors::write(&place.path("stray/model.safetensors"), &Small::m0(2).tensors.entries());
    parity(&place, "stray", &model.config, &model.tensors);
}

/// Writes a model folder whose file has this header (text) and data.
fn with_header(place: &Place, name: &str, header: &str, data: &[u8]) {
    Small::m0(1).write_config(&place.path(name));
    place.write(&format!("{name}/model.safetensors"), tensors::file_bytes(header, data));
}

/// Most resident memory of the process so far, sampled until it ends, and how long it took.
fn watched(place: &Place, words: &str) -> (Option<i32>, u64, Duration) {
    let started = Instant::now();
    let mut child = place.start(words);
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0) * 1_024);
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            return (status.code(), most, started.elapsed());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a03_lengths_in_a_header_are_not_trusted() {
    let place = place();
    let entries = Small::m0(1).tensors.entries();
    let data: Vec<u8> = entries.iter().flat_map(|e| e.bytes.iter().copied()).collect();
    let good = tensors::header(&entries);
    let edited = |name: &str, key: &str, value: Value| {
        let mut header = good.clone();
        header[name][key] = value;
        Value::Object(header).to_string()
    };
    let norm = "model.norm.weight";
    let range = good[norm]["data_offsets"].clone();
    let (begin, end) = (range[0].as_u64().expect("begin"), range[1].as_u64().expect("end"));
    let mut bad: Vec<(&str, String)> = vec![
        ("backwards", edited(norm, "data_offsets", json!([end, begin]))),
        ("overlap", edited(norm, "data_offsets", json!([begin - 4, end - 4]))),
        ("huge", edited(norm, "shape", json!([u64::MAX, 4]))),
        ("product", edited(norm, "shape", json!([1_u64 << 33, 1_u64 << 33]))),
        ("range", edited(norm, "data_offsets", json!([begin, end - 8]))),
        ("beyond", edited(norm, "data_offsets", json!([1_u64 << 40, (1_u64 << 40) + 256]))),
    ];
    let text = Value::Object(good.clone()).to_string();
    bad.push((
        "twice",
        text.replacen('{', "{\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[64],\"data_offsets\":[0,256]},", 1),
    ));
    for (name, header) in &bad {
        with_header(&place, name, header, &data);
        refused(&place, name, &["model.safetensors"]);
    }
    for (name, bytes) in [
        ("ones", [[0xff; 8].as_slice(), &[0; 1_016]].concat()),
        ("tera", [(1_u64 << 40).to_le_bytes().as_slice(), &[b' '; 1_016]].concat()),
        ("pickle", [b"PK\x03\x04".as_slice(), &[0x80; 2_000]].concat()),
        ("empty", Vec::new()),
    ] {
        Small::m0(1).write_config(&place.path(name));
        place.write(&format!("{name}/model.safetensors"), bytes);
        refused(&place, name, &["model.safetensors"]);
        let (code, most, took) = watched(&place, &format!("{RUN} --model {name} --steps 1 --run again-{name}"));
        assert_eq!(code, Some(2), "{name}");
        assert!(most < 100 << 20, "{name}: {most} bytes resident");
        assert!(took < Duration::from_secs(10), "{name} took {took:?}");
    }
}

#[test]
fn a03_unusual_but_legal_headers_are_read() {
    let place = place();
    let model = Small::m0(1);
    let entries = model.tensors.entries();
    let data: Vec<u8> = entries.iter().flat_map(|e| e.bytes.iter().copied()).collect();
    let good = tensors::header(&entries);
    let text = Value::Object(good.clone()).to_string();
    let mut backwards = serde_json::Map::new();
    backwards.extend(good.iter().rev().map(|(k, v)| (k.clone(), v.clone())));
    for (name, header) in [
        ("metadata", text.replacen('{', "{\"__metadata__\":{},", 1)),
        ("padded", format!("{text}{}", " ".repeat(5_000))),
        ("exact", format!("{text}{}", " ".repeat(100_000 - text.len()))),
        ("order", Value::Object(backwards).to_string()),
    ] {
        with_header(&place, name, &header, &data);
        parity(&place, name, &model.config, &model.tensors);
    }
}

/// The special values of f16 and bf16 that a careless conversion loses.
fn special(entry: &mut Entry) {
    let bits: [u16; 4] = match entry.dtype {
        "F16" => [0x0001, 0x8000, 0x7bff, 0x03ff],
        _ => [0x0001, 0x8000, 0x4049, 0xbf80],
    };
    for (i, b) in bits.into_iter().enumerate() {
        entry.bytes[2 * i..2 * i + 2].copy_from_slice(&b.to_le_bytes());
    }
}

/// M0 with bf16 matrices, f32 norms and an f16 embedding.
fn mixed() -> (Small, Vec<Entry>) {
    let model = Small::m0(1);
    let convert = |name: &String| {
        let (shape, values) = (model.tensors.shape(name), model.tensors.values(name));
        match name.as_str() {
            "model.embed_tokens.weight" => {
                let mut entry = Entry::f16(name, shape, values);
                // Row 511 is no byte: the values do not enter the loss.
                let row = entry.bytes.len() - 128;
                let mut last = Entry { bytes: entry.bytes.split_off(row), ..entry.clone() };
                special(&mut last);
                entry.bytes.extend(last.bytes);
                entry
            }
            _ if shape.len() == 1 => Entry::f32(name, shape, values),
            _ => Entry::bf16(name, shape, values),
        }
    };
    let entries = model.tensors.names().map(convert).collect();
    (model, entries)
}

#[test]
fn a04_mixed_dtypes_are_widened_exactly_and_exported_as_they_came() {
    let place = place();
    let (model, entries) = mixed();
    model.write_config(&place.path("mixed"));
    tensors::write(&place.path("mixed/model.safetensors"), &entries);
    let widened = Tensors::read_model(&place.path("mixed"));
    parity(&place, "mixed", &model.config, &widened);
    place.ok(&format!("{RUN} --model mixed --steps 0 --run zero"));
    place.ok("export zero --out source --dtype source");
    let bytes = |path: &str| {
        let bytes = std::fs::read(place.path(path)).expect("the file");
        let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
        let mut all: Vec<_> =
            file.tensors().into_iter().map(|(n, v)| (n, v.dtype(), v.shape().to_vec(), v.data().to_vec())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    assert!(bytes("source/model.safetensors") == bytes("mixed/model.safetensors"), "every byte as it came");
    assert_eq!(place.weights("zero").bits(), widened.bits(), "f32 holds every bf16 and f16 number");
}

#[test]
fn a04_a_dtype_that_is_not_read_is_refused_by_name() {
    let place = place();
    let model = Small::m0(1);
    let mut entries = model.tensors.entries();
    let at = entries.iter().position(|e| e.name.ends_with("0.mlp.up_proj.weight")).expect("the tensor");
    let name = entries[at].name.clone();
    let count = entries[at].bytes.len() / 4;
    entries[at] = Entry { dtype: "F8_E4M3", bytes: vec![0x38; count], ..entries[at].clone() };
    entries.push(Entry::f32(&format!("{name}_scale"), &[1], &[0.5]));
    model.write_config(&place.path("fp8"));
    tensors::write(&place.path("fp8/model.safetensors"), &entries);
    refused(&place, "fp8", &[&name, "F8_E4M3"]);
}

#[test]
fn a05_head_dim_is_read_and_shapes_are_checked() {
    let place = place();
    let wide = Small::with(1, json!({"head_dim": 32, "num_key_value_heads": 1}));
    assert_eq!(wide.tensors.shape("model.layers.0.self_attn.q_proj.weight"), [128, 64]);
    place.model("wide", &wide);
    parity(&place, "wide", &wide.config, &wide.tensors);
    place.weights("wide-run");
    let config: Value = serde_json::from_str(&place.read("wide-run-weights/config.json")).expect("JSON");
    assert_eq!(config["head_dim"], 32);

    let mut null = Small::m0(1);
    null.config["head_dim"] = Value::Null;
    place.model("null", &null);
    parity(&place, "null", &Small::m0(1).config, &null.tensors);

    let mut lying = wide.clone();
    lying.config["head_dim"] = json!(16);
    place.model("lying", &lying);
    refused(&place, "lying", &["q_proj.weight"]);
    let uneven = Small::with(1, json!({"num_key_value_heads": 3}));
    place.model("uneven", &uneven);
    refused(&place, "uneven", &["num_key_value_heads"]);
}

#[test]
fn a06_biases_and_head_norms_are_used_and_exported() {
    let place = place();
    for (name, changes) in [
        ("qwen2", json!({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]})),
        ("biased", json!({"attention_bias": true, "mlp_bias": true})),
        (
            "qwen3",
            json!({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "rms_norm_eps": 1e-6, "head_dim": 16}),
        ),
    ] {
        let model = Small::with(1, changes);
        place.model(name, &model);
        parity(&place, name, &model.config, &model.tensors);
        let exported = place.weights(&format!("{name}-run"));
        let shapes = |t: &Tensors| t.names().map(|n| (n.clone(), t.shape(n).to_vec())).collect::<Vec<_>>();
        assert_eq!(shapes(&exported), shapes(&model.tensors), "{name}: the same tensors come out");
    }
    let mut unknown = Small::m0(1);
    unknown.tensors.insert("model.layers.0.self_attn.sinks", &[4], vec![0.5; 4]);
    place.model("unknown", &unknown);
    refused(&place, "unknown", &["model.layers.0.self_attn.sinks"]);
    let mut missing = Small::with(1, json!({"attention_bias": true}));
    missing.tensors.remove("model.layers.1.self_attn.k_proj.bias");
    place.model("missing", &missing);
    refused(&place, "missing", &["model.layers.1.self_attn.k_proj.bias"]);
}

#[test]
fn a07_unknown_rope_scaling_is_refused_by_name() {
    let place = place();
    for kind in ["yarn", "dynamic", "foo"] {
        let scaling = json!({"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": 64});
        place.model(kind, &Small::with(1, json!({"rope_scaling": scaling})));
        refused(&place, kind, &[kind]);
    }
    let scaling = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64});
    let llama3 = Small::with(1, json!({"rope_scaling": scaling}));
    place.model("llama3", &llama3);
    parity(&place, "llama3", &llama3.config, &llama3.tensors);
    let mut null = Small::m0(1);
    null.config["rope_scaling"] = Value::Null;
    place.model("null", &null);
    parity(&place, "null", &Small::m0(1).config, &null.tensors);
}

#[test]
fn a09_exports_are_what_their_files_say() {
    let place = place();
    let model = Small::m0(1);
    place.model("m", &model);
    small::write_tokenizer(&place.path("m"));
    for steps in [0, 1] {
        let run = format!("r{steps}");
        place.ok(&format!("{RUN} --model m --steps {steps} --run {run}"));
        for (dtype, named) in [("f32", "float32"), ("bf16", "bfloat16")] {
            let out = format!("{run}-{dtype}");
            place.ok(&format!("export {run} --out {out} --dtype {dtype} --max-shard 100KB"));
            let config: Value = serde_json::from_str(&place.read(&format!("{out}/config.json"))).expect("JSON");
            let said = config.get("dtype").or(config.get("torch_dtype")).expect("a dtype");
            assert_eq!(said, named);
            let files = std::fs::read_dir(place.path(&out)).expect("the export").flatten();
            let names: Vec<String> = files.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
            let shards = names.iter().filter(|n| n.ends_with(".safetensors")).count();
            assert!(shards > 1, "{names:?}");
            for file in ["tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"] {
                assert!(names.iter().any(|n| n == file), "{file} is not in {names:?}");
            }
            check_export(&place, &out, if dtype == "f32" { 4 } else { 2 });
        }
    }
    assert_eq!(
        Tensors::read_model(&place.path("r0-f32")).bits(),
        model.tensors.bits(),
        "nothing trained, nothing changed"
    );
    let rounded = Tensors::read_model(&place.path("r1-bf16"));
    let full = Tensors::read_model(&place.path("r1-f32"));
    for name in full.names() {
        let even = full.values(name).iter().map(|&w| half::bf16::from_f32(w).to_f32().to_bits());
        assert!(even.eq(rounded.values(name).iter().map(|w| w.to_bits())), "{name}: nearest, ties to even");
    }
    place.refused("export r1 --out r1-f32", 2, &["r1-f32"]);
    place.ok(&format!("{RUN} --model r1-f32 --steps 1 --run from-shards"));
}

/// Every tensor has `width` bytes an element and more than none; the index's total is theirs.
fn check_export(place: &Place, out: &str, width: usize) {
    let index: Value = serde_json::from_str(&place.read(&format!("{out}/model.safetensors.index.json"))).expect("JSON");
    let tensors = Tensors::read_model(&place.path(out));
    let elements: usize = tensors.names().map(|n| tensors.values(n).len()).sum();
    assert!(tensors.names().all(|n| !tensors.values(n).is_empty()));
    assert_eq!(index["metadata"]["total_size"].as_u64(), Some((elements * width) as u64), "{out}");
}
