//! Checkpoint folders made for the tests, sound and broken, and what the tests of this module share.

mod folder;
mod header;
mod source;
mod stored;
mod written;

use super::Source;
use super::dtype::Dtype;
use super::init;
use crate::error::{Error, Result};
use crate::model::{Manifest, ModelConfig};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use tempfile::TempDir;

/// One tensor of a file to be written.
#[derive(Clone)]
struct DraftTensor {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Tensors of a checkpoint to be written, in the order of their data.
#[derive(Clone)]
struct Draft {
    tensors: Vec<DraftTensor>,
}

/// A small model with fields of its configuration replaced.
fn model(edits: Value) -> (ModelConfig, Manifest) {
    let mut json = json!({
        "model_type": "llama", "vocab_size": 72, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 40, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false, "max_position_embeddings": 64,
        "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.1,
        "rope_theta": 10000.0, "torch_dtype": "float32"
    });
    json.as_object_mut().unwrap().extend(edits.as_object().unwrap().clone());
    let config = ModelConfig::parse(&json.to_string(), Path::new("config.json")).unwrap();
    let manifest = Manifest::new(&config);
    (config, manifest)
}

/// A folder with the configuration alone.
fn config_folder(config: &ModelConfig) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), Value::Object(config.json.clone()).to_string()).unwrap();
    dir
}

/// A folder with configuration and weights in one file.
fn single_folder(config: &ModelConfig, draft: &Draft) -> TempDir {
    let dir = config_folder(config);
    std::fs::write(dir.path().join("model.safetensors"), draft.bytes()).unwrap();
    dir
}

/// The refusal's text; fails unless the result is a refusal of the input.
fn refusal<T: Debug>(result: Result<T>) -> String {
    match result {
        Err(error @ Error::Input { .. }) => error.to_string(),
        other => panic!("not refused as input: {other:?}"),
    }
}

/// Whether a refusal says all of these.
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

/// Every tensor's values, read in blocks that end within tensors and go over their borders.
fn read_all(source: &Source, manifest: &Manifest) -> BTreeMap<String, Vec<f32>> {
    let mut values = BTreeMap::new();
    for (index, unit) in manifest.units.iter().enumerate() {
        let mut weights = vec![f32::NAN; unit.elements];
        for (block, out) in weights.chunks_mut(1_001).enumerate() {
            source.read_unit(index, block * 1_001, out, 2).unwrap();
        }
        for tensor in &unit.tensors {
            values.insert(tensor.name.clone(), weights[tensor.offset..][..tensor.len].to_vec());
        }
    }
    values
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

impl Draft {
    /// Weights for every tensor of a model, in the format that `dtype_of` gives; no bias is zero, no norm one.
    fn new(manifest: &Manifest, dtype_of: impl Fn(&str) -> Dtype) -> Draft {
        let tensors = manifest.units.iter().flat_map(|u| &u.tensors).enumerate().map(|(index, tensor)| {
            let mut values = vec![0.0; tensor.len];
            init::normal(11, index as u64, 0.5, 0, &mut values, 1);
            let dtype = dtype_of(&tensor.name);
            let mut bytes = Vec::new();
            dtype.narrow(&values, &mut bytes).unwrap();
            let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
            DraftTensor { name, dtype: dtype.name().into(), shape, bytes }
        });
        Draft { tensors: tensors.collect() }
    }

    fn index(&self, name: &str) -> usize {
        self.tensors.iter().position(|t| t.name == name).unwrap()
    }

    fn get(&mut self, name: &str) -> &mut DraftTensor {
        let index = self.index(name);
        &mut self.tensors[index]
    }

    fn remove(&mut self, name: &str) -> DraftTensor {
        let index = self.index(name);
        self.tensors.remove(index)
    }

    fn push(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.push(DraftTensor { name: name.into(), dtype: dtype.into(), shape: shape.into(), bytes });
    }

    /// Values of a tensor of one of the formats that weights have.
    fn values(&self, name: &str) -> Vec<f32> {
        let tensor = &self.tensors[self.index(name)];
        let dtype = Dtype::from_name(&tensor.dtype).unwrap();
        let mut values = vec![0.0; tensor.bytes.len() / dtype.bytes()];
        dtype.widen(&tensor.bytes, &mut values);
        values
    }

    /// The file.
    fn bytes(&self) -> Vec<u8> {
        let (mut header, mut data) = (Map::new(), Vec::new());
        for tensor in &self.tensors {
            let begin = data.len();
            data.extend_from_slice(&tensor.bytes);
            let entry = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, data.len()]});
            header.insert(tensor.name.clone(), entry);
        }
        file_of(&Value::Object(header).to_string(), &data)
    }

    /// Shards of about the same number of tensors, and their index, in `dir`.
    fn write_shards(&self, dir: &Path, shards: usize) {
        let mut map = Map::new();
        for (index, tensors) in self.tensors.chunks(self.tensors.len().div_ceil(shards)).enumerate() {
            let name = shard_name(index, shards);
            map.extend(tensors.iter().map(|t| (t.name.clone(), Value::from(name.as_str()))));
            std::fs::write(dir.join(name), Draft { tensors: tensors.to_vec() }.bytes()).unwrap();
        }
        let total: usize = self.tensors.iter().map(|t| t.bytes.len()).sum();
        let index = json!({"metadata": {"total_size": total}, "weight_map": map});
        std::fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
    }
}

fn shard_name(index: usize, shards: usize) -> String {
    format!("model-{:05}-of-{shards:05}.safetensors", index + 1)
}

/// A file of this header and data.
fn file_of(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}
