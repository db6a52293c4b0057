//! A checkpoint folder: which files hold which tensors. One `model.safetensors`, or shards named by
//! `model.safetensors.index.json`, which wins over a `model.safetensors` beside it.
//!
//! What it is not: it does not know which tensors a model needs (see `source`), and it reads no weights.
//!
//! Invariants: index and shards agree on every tensor; no file outside the folder is opened; nothing is guessed: a
//! folder with weights that are not read is refused, never taken for one without weights.

use super::header::{self, Entry, UniqueStrings};
use crate::error::{Error, Result};
use crate::input;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// File with all tensors of a small checkpoint.
pub(crate) const SINGLE: &str = "model.safetensors";
/// File that maps tensors to shards.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// Endings of files with weights in formats that are not read.
const FOREIGN: [&str; 8] = [".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".gguf"];

/// An opened checkpoint.
#[derive(Debug)]
pub(crate) struct Folder {
    /// The files that are read.
    pub files: Vec<(PathBuf, File)>,
    /// Every tensor with the index of its file.
    pub tensors: BTreeMap<String, (usize, Entry)>,
    /// What the user should know.
    pub notices: Vec<String>,
}

/// Whether a tensor is a buffer that old checkpoints hold and that follows from the configuration.
pub(crate) fn is_derived_buffer(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}

/// Opens the checkpoint in `dir`; None if the folder holds no weights.
///
/// # Errors
/// `Input` naming file, tensor and byte counts for everything that does not fit together.
pub(crate) fn open(dir: &Path) -> Result<Option<Folder>> {
    let mut names = Vec::new();
    for entry in input::entries(dir, "a model folder")? {
        let entry = entry.map_err(|e| Error::io(dir, "listing the folder", e))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort();
    let has = |name: &str| names.iter().any(|n| n == name);
    let mut folder = if has(INDEX) {
        open_shards(dir)?
    } else if has(SINGLE) {
        open_single(dir)?
    } else if let Some(other) = names.iter().find(|n| n.ends_with(".safetensors")) {
        return Err(Error::input(dir.display().to_string(), "weights", format!("{SINGLE} or {INDEX}"), other));
    } else if let Some(foreign) = names.iter().find(|n| FOREIGN.iter().any(|end| n.ends_with(end))) {
        return Err(Error::Input {
            place: dir.join(foreign).display().to_string(),
            field: "format".into(),
            expected: format!("{SINGLE} or {INDEX}"),
            found: foreign.clone(),
            hint: Some("only safetensors are read; save the checkpoint as safetensors".into()),
        });
    } else {
        return Ok(None);
    };
    for name in names.iter().filter(|n| n.starts_with("model") && n.ends_with(".safetensors")) {
        if !folder.files.iter().any(|(path, _)| path.ends_with(name)) {
            folder
                .notices
                .push(format!("{}: not read, another file of the folder has the weights", dir.join(name).display()));
        }
    }
    Ok(Some(folder))
}

fn open_single(dir: &Path) -> Result<Folder> {
    let path = dir.join(SINGLE);
    let file = input::open(&path, "safetensors")?;
    let tensors = header::read(&file, &path)?.into_iter().map(|e| (e.name.clone(), (0, e))).collect();
    Ok(Folder { files: vec![(path, file)], tensors, notices: Vec::new() })
}

#[derive(serde::Deserialize)]
struct Index {
    metadata: Option<serde_json::Map<String, serde_json::Value>>,
    weight_map: UniqueStrings,
}

fn open_shards(dir: &Path) -> Result<Folder> {
    let index_path = dir.join(INDEX);
    let file = input::open(&index_path, "an index of shards")?;
    let bytes = file.metadata().map_err(|e| Error::io(&index_path, "reading its size", e))?.len();
    if bytes > header::LENGTH_MAX {
        let expected = format!("at most {} bytes", header::LENGTH_MAX);
        return Err(Error::input(index_path.display().to_string(), "file size", expected, format!("{bytes} bytes")));
    }
    let index: Index = serde_json::from_slice(&input::bytes(&index_path, file)?).map_err(|e| {
        Error::input(index_path.display().to_string(), "weight_map", "an object from tensor to file", e.to_string())
    })?;
    let map = index.weight_map.0;
    let mut shards: BTreeMap<&str, usize> = BTreeMap::new();
    for (tensor, shard) in &map {
        if shard.is_empty() || shard.contains(['/', '\\']) || shard == ".." {
            return Err(Error::input(index_path.display().to_string(), tensor, "a file name", format!("{shard:?}")));
        }
        shards.insert(shard, 0);
    }
    let mut folder = Folder { files: Vec::new(), tensors: BTreeMap::new(), notices: Vec::new() };
    for (shard, place) in &mut shards {
        *place = folder.files.len();
        open_shard(dir, shard, &map, &mut folder)?;
    }
    for (tensor, shard) in &map {
        if folder.tensors.get(tensor).is_none_or(|(file, _)| Some(file) != shards.get(shard.as_str())) {
            let place = dir.join(shard).display().to_string();
            return Err(Error::input(place, tensor, format!("the tensor that {INDEX} maps here"), "no such tensor"));
        }
    }
    check_total(&index.metadata, &index_path, &mut folder);
    Ok(folder)
}

/// Opens one shard and takes its tensors over.
fn open_shard(dir: &Path, shard: &str, map: &BTreeMap<String, String>, folder: &mut Folder) -> Result<()> {
    let path = dir.join(shard);
    let tensors = map.values().filter(|s| *s == shard).count();
    let file = input::open(&path, &format!("the file with {tensors} tensors that {INDEX} names"))?;
    for entry in header::read(&file, &path)? {
        let name = entry.name.clone();
        match map.get(&name) {
            Some(mapped) if mapped == shard => _ = folder.tensors.insert(name, (folder.files.len(), entry)),
            None if is_derived_buffer(&name) => {}
            mapped => {
                let found =
                    mapped.map_or("a tensor that it does not name".into(), |m| format!("one that it maps to {m}"));
                return Err(Error::input(
                    path.display().to_string(),
                    name,
                    format!("a tensor that {INDEX} maps here"),
                    found,
                ));
            }
        }
    }
    folder.files.push((path, file));
    Ok(())
}

/// A wrong total is common in published checkpoints and changes nothing that is read: said, not refused.
fn check_total(metadata: &Option<serde_json::Map<String, serde_json::Value>>, path: &Path, folder: &mut Folder) {
    let Some(total) = metadata.as_ref().and_then(|m| m.get("total_size")).and_then(serde_json::Value::as_u64) else {
        return;
    };
    let found: u64 = folder.tensors.values().map(|(_, entry)| entry.bytes).sum();
    if found != total {
        let path = path.display();
        folder.notices.push(format!("{path}: total_size says {total} bytes, the tensors have {found}"));
    }
}
