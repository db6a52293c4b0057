//! Reading and writing small safetensors files in tests, independently of the trainer's own reader: the published crate
//! reads, and files are laid out by hand, so that broken ones can be made too.

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::Path;

/// Tensors of a file, widened to f32.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors {
    all: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
}

/// One tensor as it lies in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name.
    pub name: String,
    /// `F32`, `BF16`, `F16`, or whatever the header is to say.
    pub dtype: &'static str,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Little-endian bytes.
    pub bytes: Vec<u8>,
}

impl Tensors {
    /// Reads one file of f32, bf16 and f16 tensors.
    pub fn read(path: &Path) -> Tensors {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = SafeTensors::deserialize(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut all = BTreeMap::new();
        for (name, view) in file.tensors() {
            let values = widen(view.dtype(), view.data());
            all.insert(name, (view.shape().to_vec(), values));
        }
        Tensors { all }
    }

    /// Reads a model folder: one file, or shards with an index.
    pub fn read_model(dir: &Path) -> Tensors {
        let index = dir.join("model.safetensors.index.json");
        if !index.exists() {
            return Tensors::read(&dir.join("model.safetensors"));
        }
        let text = std::fs::read_to_string(&index).expect("the index can be read");
        let index: serde_json::Value = serde_json::from_str(&text).expect("the index is JSON");
        let map = index["weight_map"].as_object().expect("weight_map");
        let mut out = Tensors::default();
        let files: std::collections::BTreeSet<&str> = map.values().filter_map(|v| v.as_str()).collect();
        for file in files {
            for (name, tensor) in Tensors::read(&dir.join(file)).all {
                assert_eq!(map[&name], file, "{name} lies where the index says");
                assert!(out.all.insert(name, tensor).is_none(), "a tensor lies in one shard");
            }
        }
        assert_eq!(out.all.len(), map.len(), "the index names only what is there");
        out
    }

    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.all.keys()
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// The values of a tensor, row-major.
    pub fn values(&self, name: &str) -> &[f32] {
        &self.all.get(name).unwrap_or_else(|| panic!("there is no tensor {name}")).1
    }

    /// The shape of a tensor.
    pub fn shape(&self, name: &str) -> &[usize] {
        &self.all.get(name).unwrap_or_else(|| panic!("there is no tensor {name}")).0
    }

    /// Adds or replaces a tensor.
    pub fn insert(&mut self, name: &str, shape: &[usize], values: Vec<f32>) {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "{name} has a value for each element");
        self.all.insert(name.to_owned(), (shape.to_vec(), values));
    }

    /// Takes a tensor out.
    pub fn remove(&mut self, name: &str) {
        assert!(self.all.remove(name).is_some(), "there is no tensor {name}");
    }

    /// Bits of everything, for exact comparison (NaN included, -0 apart from 0).
    pub fn bits(&self) -> BTreeMap<&str, (&[usize], Vec<u32>)> {
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect();
        self.all.iter().map(|(n, (s, v))| (n.as_str(), (s.as_slice(), bits(v)))).collect()
    }

    /// As entries of a file in f32.
    pub fn entries(&self) -> Vec<Entry> {
        self.all.iter().map(|(name, (shape, values))| Entry::f32(name, shape, values)).collect()
    }
}

fn widen(dtype: Dtype, data: &[u8]) -> Vec<f32> {
    let pairs = || data.as_chunks::<2>().0.iter();
    match dtype {
        Dtype::F32 => data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        Dtype::BF16 => pairs().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
        Dtype::F16 => pairs().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        other => panic!("tests read no {other:?}"),
    }
}

impl Entry {
    /// An f32 tensor.
    pub fn f32(name: &str, shape: &[usize], values: &[f32]) -> Entry {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Entry { name: name.to_owned(), dtype: "F32", shape: shape.to_vec(), bytes }
    }

    /// The same tensor rounded to bf16.
    pub fn bf16(name: &str, shape: &[usize], values: &[f32]) -> Entry {
        let bytes = values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
        Entry { name: name.to_owned(), dtype: "BF16", shape: shape.to_vec(), bytes }
    }

    /// The same tensor rounded to f16.
    pub fn f16(name: &str, shape: &[usize], values: &[f32]) -> Entry {
        let bytes = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
        Entry { name: name.to_owned(), dtype: "F16", shape: shape.to_vec(), bytes }
    }
}

/// The header of a file with these entries, data in their order.
pub fn header(entries: &[Entry]) -> serde_json::Map<String, serde_json::Value> {
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for e in entries {
        let range = [at, at + e.bytes.len()];
        header.insert(e.name.clone(), serde_json::json!({"dtype": e.dtype, "shape": e.shape, "data_offsets": range}));
        at = range[1];
    }
    header
}

/// Bytes of a file: length, header padded with spaces to a multiple of 8, data.
pub fn file_bytes(header: &str, data: &[u8]) -> Vec<u8> {
    let mut text = header.as_bytes().to_vec();
    text.resize(text.len().next_multiple_of(8), b' ');
    [(text.len() as u64).to_le_bytes().as_slice(), &text, data].concat()
}

/// Writes a file with these entries.
pub fn write(path: &Path, entries: &[Entry]) {
    let header = serde_json::Value::Object(header(entries)).to_string();
    let data: Vec<u8> = entries.iter().flat_map(|e| e.bytes.iter().copied()).collect();
    std::fs::write(path, file_bytes(&header, &data)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// Writes entries as `count` shards with an index, in order of their names.
pub fn write_shards(dir: &Path, entries: &[Entry], count: usize) {
    let mut map = serde_json::Map::new();
    let size: usize = entries.iter().map(|e| e.bytes.len()).sum();
    for (i, part) in entries.chunks(entries.len().div_ceil(count)).enumerate() {
        let file = format!("model-{:05}-of-{count:05}.safetensors", i + 1);
        write(&dir.join(&file), part);
        map.extend(part.iter().map(|e| (e.name.clone(), file.clone().into())));
    }
    let index = serde_json::json!({"metadata": {"total_size": size}, "weight_map": map});
    std::fs::write(dir.join("model.safetensors.index.json"), index.to_string()).expect("the index can be written");
}
