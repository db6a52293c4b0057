//! What goes along with the weights of a checkpoint: the configuration as trained, and the tokenizer's files unchanged.
//!
//! What it is not: it reads neither; a configuration is `model::config`'s, a tokenizer the data's.

use super::dtype::Dtype;
use crate::error::{Error, Result};
use crate::input;
use crate::model::ModelConfig;
use serde_json::{Map, Value};
use std::fs::File;
use std::path::Path;

/// Files of a model folder that are copied as they are, those that exist.
const FILES: [&str; 11] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
];

/// Names of the files that `copy_files` knows.
pub fn names_of_files() -> impl Iterator<Item = &'static str> {
    FILES.into_iter()
}

/// Copies tokenizer, chat template and generation settings from one folder to another, durably; gives their names.
///
/// # Errors
/// Those of [`input::open`]; `Io`.
pub fn copy_files(from: &Path, to: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for name in FILES.into_iter().filter(|name| from.join(name).is_file()) {
        let target = to.join(name);
        let mut source = input::open(&from.join(name), "a file of the model folder")?;
        // Not `fs::copy`: the source's permissions may be those of a read-only cache.
        let mut copy = File::create(&target).map_err(|e| Error::io(&target, "creating", e))?;
        std::io::copy(&mut source, &mut copy).map_err(|e| Error::io(&target, "copying", e))?;
        copy.sync_all().map_err(|e| Error::io(&target, "syncing", e))?;
        names.push(name.to_string());
    }
    Ok(names)
}

/// The text of `config.json` for weights written as `weights`: the one that was read, with what training fixed.
pub(crate) fn config_json(config: &ModelConfig, weights: &[Dtype]) -> String {
    let mut json = config.json.clone();
    let dtype = Value::from(config_dtype(&json, weights));
    // Older checkpoints say torch_dtype; readers of the newer layout understand it too, not the reverse.
    let keys: Vec<&str> = ["dtype", "torch_dtype"].into_iter().filter(|key| json.contains_key(*key)).collect();
    match keys[..] {
        [] if json.contains_key("rope_parameters") => _ = json.insert("dtype".into(), dtype),
        [] => _ = json.insert("torch_dtype".into(), dtype),
        _ => keys.into_iter().for_each(|key| _ = json.insert(key.into(), dtype.clone())),
    }
    json.insert("head_dim".into(), config.head_dim.into());
    json.insert("tie_word_embeddings".into(), config.tied.into());
    format!("{:#}\n", Value::Object(json))
}

/// The format to name: that of all tensors; of mixed ones that which was named before, else the widest.
fn config_dtype(json: &Map<String, Value>, weights: &[Dtype]) -> &'static str {
    let named = |dtype: &&Dtype| {
        ["dtype", "torch_dtype"].iter().any(|key| json.get(*key).and_then(Value::as_str) == Some(dtype.config_name()))
    };
    weights.iter().find(named).or_else(|| weights.iter().max()).copied().unwrap_or(Dtype::F32).config_name()
}
