//! Weights that do not fit the model: tie flag, formats, shapes, names, numbers; and their sound twins.

use super::super::Source;
use super::super::dtype::Dtype;
use super::{Draft, assert_says, bits, config_folder, model, read_all, refusal, single_folder};
use crate::error::Result;
use crate::model::{Manifest, ModelConfig};
use serde_json::json;

const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

fn open(config: &ModelConfig, manifest: &Manifest, draft: &Draft) -> Result<Source> {
    Source::open(single_folder(config, draft).path(), config, manifest, 0)
}

/// What the model reads, after a check that each tensor has exactly the draft's values.
fn reads_exactly(config: &ModelConfig, manifest: &Manifest, draft: &Draft) -> Source {
    let source = open(config, manifest, draft).unwrap();
    let values = read_all(&source, manifest);
    for tensor in manifest.units.iter().flat_map(|u| &u.tensors) {
        assert_eq!(bits(&values[&tensor.name]), bits(&draft.values(&tensor.name)), "{}", tensor.name);
    }
    source
}

#[test]
fn tie_flag_and_head_must_agree() {
    let (tied, tied_manifest) = model(json!({"tie_word_embeddings": true}));
    let (untied, untied_manifest) = model(json!({}));
    let without = Draft::new(&tied_manifest, |_| Dtype::F32);
    let mut equal = without.clone();
    let table = equal.get(EMBEDDING).clone();
    equal.push(HEAD, "F32", &table.shape, table.bytes.clone());
    let different = Draft::new(&untied_manifest, |_| Dtype::F32);

    assert_eq!(reads_exactly(&tied, &tied_manifest, &without).notices(), [""; 0]);
    let source = reads_exactly(&tied, &tied_manifest, &equal);
    assert_says(&source.notices().join("\n"), &[HEAD, "equals the embedding"]);
    assert!(!source.record().tensors.contains_key(HEAD));
    assert_says(&refusal(open(&tied, &tied_manifest, &different)), &[HEAD, "tie_word_embeddings"]);
    assert_says(&refusal(open(&untied, &untied_manifest, &without)), &[HEAD, "no such tensor", "tie_word_embeddings"]);
    reads_exactly(&untied, &untied_manifest, &different);

    // One bit in the last element is a different head; another shape is.
    let mut nearly = equal.clone();
    let last = nearly.get(HEAD).bytes.len() - 4;
    nearly.get(HEAD).bytes[last] ^= 1;
    assert_says(&refusal(open(&tied, &tied_manifest, &nearly)), &[HEAD, "element 1727"]);
    let mut short = equal.clone();
    short.get(HEAD).shape[0] -= 1;
    short.get(HEAD).bytes.truncate(last - 92);
    assert_says(&refusal(open(&tied, &tied_manifest, &short)), &[HEAD, "[71, 24]"]);
}

#[test]
fn an_equal_head_may_have_another_format() {
    let (config, manifest) = model(json!({"tie_word_embeddings": true}));
    let mut draft = Draft::new(&manifest, |_| Dtype::Bf16);
    let (shape, values) = (draft.get(EMBEDDING).shape.clone(), draft.values(EMBEDDING));
    draft.push(HEAD, "F32", &shape, bytemuck::cast_slice(&values).to_vec());
    reads_exactly(&config, &manifest, &draft);
}

#[test]
fn mixed_formats_are_widened_tensor_by_tensor() {
    let (config, manifest) = model(json!({}));
    let mut draft = Draft::new(&manifest, |name| match name {
        EMBEDDING => Dtype::F16,
        name if name.contains("norm") => Dtype::F32,
        _ => Dtype::Bf16,
    });
    let special = [0x0001_u16, 0x83FF, 0x8000, 0x0000, 0x7BFF, 0xFBFF, 0x0400];
    draft.get(EMBEDDING).bytes[..14].copy_from_slice(bytemuck::cast_slice(&special));
    let record = reads_exactly(&config, &manifest, &draft).record();
    assert_eq!(record.tensors[EMBEDDING], Dtype::F16);
    assert_eq!(record.tensors["model.norm.weight"], Dtype::F32);
    assert_eq!(record.tensors[HEAD], Dtype::Bf16);
    let json = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<super::super::SourceRecord>(&json).unwrap(), record);
}

#[test]
fn other_formats_are_refused_by_tensor_and_format() {
    let (config, manifest) = model(json!({}));
    let sound = Draft::new(&manifest, |_| Dtype::Bf16);
    let name = "model.layers.1.mlp.up_proj.weight";
    for (dtype, bytes) in [("F8_E4M3", 1), ("F8_E5M2", 1), ("I8", 1), ("F64", 8), ("I32", 4), ("U16", 2)] {
        let mut draft = sound.clone();
        let tensor = draft.get(name);
        tensor.dtype = dtype.into();
        tensor.bytes = vec![0; 40 * 24 * bytes];
        // The scale beside a quantized tensor is unknown too, but says less.
        draft.push("model.layers.1.mlp.up_proj.weight_scale", "F32", &[1], vec![0; 4]);
        assert_says(&refusal(open(&config, &manifest, &draft)), &[name, dtype]);
    }
}

#[test]
fn shapes_must_be_those_of_the_configuration() {
    let (config, manifest) = model(json!({"head_dim": 12, "num_key_value_heads": 1}));
    let draft = Draft::new(&manifest, |_| Dtype::F32);
    reads_exactly(&config, &manifest, &draft);
    let (other, other_manifest) = model(json!({}));
    let text = refusal(open(&other, &other_manifest, &draft));
    assert_says(&text, &["self_attn.q_proj.weight", "[32, 24]", "[48, 24]"]);
    // The same number of elements in another shape is another matrix.
    let mut turned = draft.clone();
    turned.get(EMBEDDING).shape.reverse();
    assert_says(&refusal(open(&config, &manifest, &turned)), &[EMBEDDING, "[72, 24]", "[24, 72]"]);
    let mut more_rows = draft;
    more_rows.get(EMBEDDING).shape[0] += 1;
    more_rows.get(EMBEDDING).bytes.extend([0; 96]);
    assert_says(&refusal(open(&config, &manifest, &more_rows)), &[EMBEDDING, "[73, 24]"]);
}

#[test]
fn biases_and_head_norms_are_read() {
    for edits in [
        json!({"model_type": "qwen2"}),
        json!({"attention_bias": true, "mlp_bias": true}),
        json!({"model_type": "qwen3", "rms_norm_eps": 1e-6}),
    ] {
        let (config, manifest) = model(edits);
        reads_exactly(&config, &manifest, &Draft::new(&manifest, |_| Dtype::F32));
    }
}

#[test]
fn unknown_and_missing_tensors_are_refused_by_name() {
    let (config, manifest) = model(json!({}));
    let sound = Draft::new(&manifest, |_| Dtype::F32);
    for tensor in &sound.tensors {
        let mut draft = sound.clone();
        draft.remove(&tensor.name);
        assert_says(&refusal(open(&config, &manifest, &draft)), &[&tensor.name, "no such tensor"]);
    }
    for name in ["model.layers.0.self_attn.q_proj.bias", "model.layers.2.input_layernorm.weight", "x", "lm_head.bias"] {
        let mut draft = sound.clone();
        draft.push(name, "F32", &[1], vec![0; 4]);
        assert_says(&refusal(open(&config, &manifest, &draft)), &[name, "unknown"]);
    }
    // A model with biases does not take a checkpoint without them, nor the reverse.
    let (qwen, qwen_manifest) = model(json!({"model_type": "qwen2"}));
    assert_says(&refusal(open(&qwen, &qwen_manifest, &sound)), &["q_proj.bias", "no such tensor"]);
    let biased = Draft::new(&qwen_manifest, |_| Dtype::F32);
    assert_says(&refusal(open(&config, &manifest, &biased)), &["_proj.bias", "unknown"]);
}

#[test]
fn rotary_buffers_of_old_checkpoints_are_skipped_and_said() {
    let (config, manifest) = model(json!({}));
    let mut draft = Draft::new(&manifest, |_| Dtype::F32);
    for layer in 0..2 {
        let name = format!("model.layers.{layer}.self_attn.rotary_emb.inv_freq");
        draft.push(&name, "F32", &[4], vec![0; 16]);
    }
    let source = reads_exactly(&config, &manifest, &draft);
    assert_says(&source.notices().join("\n"), &["2 rotary_emb.inv_freq"]);
}

#[test]
fn weights_that_the_state_cannot_hold_are_refused_by_tensor_and_element() {
    let (config, manifest) = model(json!({}));
    let name = "model.layers.1.self_attn.o_proj.weight";
    let check = |dtype: Dtype, pattern: &[u8], fits: bool| {
        for at in [0, 700, 767] {
            let mut draft = Draft::new(&manifest, |_| dtype);
            draft.get(name).bytes[at * dtype.bytes()..][..dtype.bytes()].copy_from_slice(pattern);
            let source = open(&config, &manifest, &draft).unwrap();
            let mut unit = vec![0.0; manifest.units[2].elements];
            let result = source.read_unit(2, 0, &mut unit, 1);
            match fits {
                true => assert_eq!(result.err().map(|e| e.to_string()), None, "{pattern:x?}"),
                false => assert_says(&refusal(result), &["model.safetensors", name, &format!("element {at}:")]),
            }
        }
    };
    for sign in [0, 1 << 31] {
        let f32s = [
            (0x7F7F_7FFF, true),
            (0x7F7F_8000, false),
            (0x7F80_0000, false),
            (0x7FC0_0000, false),
            (0x7F80_0001, false),
        ];
        f32s.iter().for_each(|(bits, fits)| check(Dtype::F32, &u32::to_le_bytes(bits | sign), *fits));
        let sign = (sign >> 16) as u16;
        let bf16s = [(0x7F7F, true), (0x7F80, false), (0x7FC0, false)];
        bf16s.iter().for_each(|(bits, fits)| check(Dtype::Bf16, &u16::to_le_bytes(bits | sign), *fits));
        let f16s = [(0x7BFF, true), (0x7C00, false), (0x7E00, false)];
        f16s.iter().for_each(|(bits, fits)| check(Dtype::F16, &u16::to_le_bytes(bits | sign), *fits));
    }
}

#[test]
fn a_random_initialization_is_seeded_and_knows_norms_and_biases() {
    let (config, manifest) = model(json!({"model_type": "qwen2"}));
    let dir = config_folder(&config);
    let values = |seed| read_all(&Source::open(dir.path(), &config, &manifest, seed).unwrap(), &manifest);
    let first = values(3);
    assert!(first == values(3) && first != values(4));
    for (name, values) in &first {
        let squares: f64 = values.iter().map(|v| f64::from(*v).powi(2)).sum();
        let deviation = (squares / values.len() as f64).sqrt();
        match name {
            name if name.ends_with(".bias") => assert!(values.iter().all(|v| *v == 0.0), "{name}"),
            name if name.contains("norm") => assert!(values.iter().all(|v| *v == 1.0), "{name}"),
            _ => assert!((deviation - 0.1).abs() < 0.01, "{name} {deviation}"),
        }
    }
    assert_ne!(first["model.layers.0.mlp.up_proj.weight"], first["model.layers.0.mlp.gate_proj.weight"]);
}

#[test]
fn the_golden_models_load() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    for case in ["llama-gqa", "llama3-rope-tied", "mistral-swa", "qwen2-bias", "qwen3-qknorm"] {
        let dir = golden.join(case);
        let config = ModelConfig::read(&dir.join("config.json")).unwrap();
        let manifest = Manifest::new(&config);
        let source = Source::open(&dir, &config, &manifest, 0).unwrap();
        assert_eq!(source.notices(), [""; 0], "{case}");
        let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let values = read_all(&source, &manifest);
        assert_eq!(values.len(), tensors.len(), "{case}");
        for (name, view) in tensors.iter() {
            assert!(bytemuck::cast_slice::<_, u8>(&values[name]) == view.data(), "{case} {name}");
        }
    }
}
