//! The safetensors files of an export: which tensor goes where, and the bytes, written as weights arrive.
//!
//! What it is not: it does not know where weights come from or how files are written (`async_files`).
//!
//! Invariants: weights arrive in the order of the manifest, each once; a file's header is known before its first
//! weight, so nothing is held back. Within a file tensors lie as the format's own library lays them, wider formats
//! first, then by name, so that every tensor is aligned and a checkpoint written by it comes back byte for byte;
//! therefore writes are positional.

use super::async_files::{Files, OutFile};
use super::dtype::Dtype;
use super::folder::{INDEX, SINGLE};
use crate::error::{Error, Result};
use crate::model::{Manifest, Tensor};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Most weights converted and written at a time.
const PIECE: usize = 1 << 20;

/// One tensor of a file.
#[derive(Debug)]
pub(crate) struct OutTensor {
    pub name: String,
    pub dtype: Dtype,
    pub len: usize,
    /// First byte in the file.
    pub position: u64,
}

/// One file.
#[derive(Debug)]
pub(crate) struct OutPlan {
    pub name: String,
    /// Length and JSON.
    pub header: Vec<u8>,
    /// In the order of the manifest.
    pub tensors: Vec<OutTensor>,
}

/// All files with weights.
#[derive(Debug)]
pub(crate) struct FilesPlan {
    pub files: Vec<OutPlan>,
    /// Bytes of all tensors.
    pub total_size: u64,
}

impl FilesPlan {
    /// One file, or shards of at most `max_shard_bytes` of tensors (a larger tensor has a shard of its own).
    pub fn new(manifest: &Manifest, dtype_of: impl Fn(&Tensor) -> Dtype, max_shard_bytes: Option<u64>) -> FilesPlan {
        let limit = max_shard_bytes.unwrap_or(u64::MAX);
        let (mut shards, mut total_size, mut filled) = (vec![Vec::new()], 0, 0);
        for tensor in manifest.units.iter().flat_map(|u| &u.tensors) {
            let dtype = dtype_of(tensor);
            let bytes = (tensor.len * dtype.bytes()) as u64;
            if filled > 0 && filled + bytes > limit {
                shards.push(Vec::new());
                filled = 0;
            }
            shards.last_mut().expect("there is always a shard").push((tensor, dtype));
            filled += bytes;
            total_size += bytes;
        }
        let count = shards.len();
        let name = |index| match count {
            1 => SINGLE.into(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
        };
        let files = shards.into_iter().enumerate().map(|(index, shard)| plan_file(name(index), &shard)).collect();
        FilesPlan { files, total_size }
    }

    /// The format of every tensor.
    pub fn dtypes(&self) -> Vec<Dtype> {
        self.files.iter().flat_map(|f| f.tensors.iter().map(|t| t.dtype)).collect()
    }

    /// The index that belongs to shards; None for one file.
    pub fn index(&self) -> Option<(&'static str, String)> {
        if self.files.len() == 1 {
            return None;
        }
        let entries = self.files.iter().flat_map(|f| f.tensors.iter().map(|t| (t.name.clone(), Value::from(&*f.name))));
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let map: Map<String, Value> = entries.into_iter().collect();
        let index = json!({ "metadata": { "total_size": self.total_size }, "weight_map": map });
        Some((INDEX, format!("{index:#}\n")))
    }
}

fn plan_file(name: String, shard: &[(&Tensor, Dtype)]) -> OutPlan {
    let mut order: Vec<usize> = (0..shard.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(rank(shard[i].1)), &shard[i].0.name));
    let mut begins = vec![0_u64; shard.len()];
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({ "format": "pt" }));
    let mut end = 0;
    for index in order {
        let (tensor, dtype) = shard[index];
        begins[index] = end;
        end += (tensor.len * dtype.bytes()) as u64;
        let entry = json!({ "dtype": dtype.name(), "shape": tensor.shape, "data_offsets": [begins[index], end] });
        header.insert(tensor.name.clone(), entry);
    }
    let mut json = Value::Object(header).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let data = 8 + json.len() as u64;
    let tensors = shard.iter().zip(begins).map(|((tensor, dtype), begin)| OutTensor {
        name: tensor.name.clone(),
        dtype: *dtype,
        len: tensor.len,
        position: data + begin,
    });
    let tensors = tensors.collect();
    let header = [&(json.len() as u64).to_le_bytes(), json.as_slice()].concat();
    OutPlan { name, header, tensors }
}

/// Order of the formats within a file, which is that of the format's own library.
fn rank(dtype: Dtype) -> u8 {
    match dtype {
        Dtype::F16 => 0,
        Dtype::Bf16 => 1,
        Dtype::F32 => 2,
    }
}

/// Writes the weights of a plan as they arrive.
pub(crate) struct WeightsWriter<'a, F: Files> {
    files: &'a F,
    dir: &'a Path,
    plan: &'a FilesPlan,
    /// Where the next weight belongs: file, tensor of the file, element of the tensor.
    next: (usize, usize, usize),
    open: Option<F::File>,
    buffer: Vec<u8>,
}

impl<'a, F: Files> WeightsWriter<'a, F> {
    /// A writer into the folder `dir`.
    pub fn new(files: &'a F, dir: &'a Path, plan: &'a FilesPlan) -> Self {
        WeightsWriter { files, dir, plan, next: (0, 0, 0), open: None, buffer: Vec::new() }
    }

    /// Writes the next weights.
    ///
    /// # Errors
    /// `Io`; `Input` naming tensor and element if a weight is beyond the range of the tensor's format.
    pub async fn push(&mut self, mut weights: &[f32]) -> Result<()> {
        while !weights.is_empty() {
            let (file, tensor, element) = self.next;
            let plan = &self.plan.files[file];
            let out = &plan.tensors[tensor];
            let (piece, rest) = weights.split_at(weights.len().min(out.len - element).min(PIECE));
            self.buffer.clear();
            out.dtype.narrow(piece, &mut self.buffer).map_err(|at| Error::Input {
                place: self.dir.join(&plan.name).display().to_string(),
                field: format!("{}, element {}", out.name, element + at),
                expected: format!("a weight within the range of {}", out.dtype.name()),
                found: format!("{:e}", piece[at]),
                hint: Some("export with --dtype f32 or bf16".into()),
            })?;
            self.write(out.position + (element * out.dtype.bytes()) as u64).await?;
            self.next = (file, tensor, element + piece.len());
            weights = rest;
            if element + piece.len() == out.len {
                self.next = (file, tensor + 1, 0);
                if tensor + 1 == plan.tensors.len() {
                    self.close().await?;
                    self.next = (file + 1, 0, 0);
                }
            }
        }
        Ok(())
    }

    /// Says that all weights have come.
    pub fn finish(self) {
        assert_eq!(self.next, (self.plan.files.len(), 0, 0), "every weight of the plan was written");
    }

    fn path(&self) -> PathBuf {
        self.dir.join(&self.plan.files[self.next.0].name)
    }

    /// Writes the buffer to `position` of the current file, which is made if this is its first piece.
    async fn write(&mut self, position: u64) -> Result<()> {
        let path = self.path();
        if self.open.is_none() {
            let mut file = self.files.create(&path).await.map_err(|e| Error::io(&path, "creating", e))?;
            let header = self.plan.files[self.next.0].header.clone();
            file.write_all(header, 0).await.0.map_err(|e| Error::io(&path, "writing", e))?;
            self.open = Some(file);
        }
        let file = self.open.as_mut().expect("opened above");
        let (result, buffer) = file.write_all(std::mem::take(&mut self.buffer), position).await;
        self.buffer = buffer;
        result.map_err(|e| Error::io(&path, "writing", e))
    }

    async fn close(&mut self) -> Result<()> {
        let path = self.path();
        let mut file = self.open.take().expect("a file with a tensor was opened");
        file.sync().await.map_err(|e| Error::io(&path, "syncing", e))?;
        file.close().await.map_err(|e| Error::io(&path, "closing", e))
    }
}
