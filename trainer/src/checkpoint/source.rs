//! Where a model's first weights come from: the files of a checkpoint, or a seeded random initialization if the folder
//! holds a configuration alone.
//!
//! What it is not: it places nothing and keeps no weights; every read names a range and fills the caller's slice.
//!
//! Terms: a tensor's index counts over all units of the manifest in order.
//!
//! Invariants: every tensor of the manifest has exactly one place; a tensor of the checkpoint that the model does not
//! use is refused, not skipped (except the buffers and the equal copy of a tied head that a notice names); widening is
//! exact; no weight that the state cannot hold leaves this file. Files are read with positional reads: the store's
//! writing is the slower side, the ranges are consecutive so that the system reads ahead, and a mapped file that
//! another process cuts off would kill this one.

use super::dtype::Dtype;
use super::folder::{self, Folder};
use super::header::Entry;
use super::init;
use crate::error::{Error, Result};
use crate::model::{Manifest, ModelConfig};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Weights of this magnitude and above, NaN and infinity (as bits without sign) have no place in the state's planes.
const BITS_LIMIT: u32 = 0x7F7F_8000;
/// Bytes read from a file at a time where they must be widened.
const READ_BYTES: usize = 1 << 18;
/// The head's matrix as checkpoints name it.
const HEAD: &str = "lm_head.weight";
/// The embedding's matrix as checkpoints name it.
const EMBEDDING: &str = "model.embed_tokens.weight";

/// What a run remembers of where its weights came from: enough to export in the same formats.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceRecord {
    /// The folder.
    pub model_dir: PathBuf,
    /// Seed of a random initialization; None if weights were read.
    pub seed: Option<u64>,
    /// Format of each tensor in the checkpoint (F32 for a random initialization).
    pub tensors: BTreeMap<String, Dtype>,
}

/// First weights of a model.
#[derive(Debug)]
pub struct Source {
    dir: PathBuf,
    files: Vec<(PathBuf, File)>,
    /// Units, each with its tensors in element order.
    units: Vec<Vec<SourceTensor>>,
    /// Seed and standard deviation of a random initialization.
    random: Option<(u64, f64)>,
    notices: Vec<String>,
}

#[derive(Debug)]
struct SourceTensor {
    name: String,
    /// Elements from the start of the unit.
    offset: usize,
    len: usize,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    File { file: usize, position: u64, dtype: Dtype },
    Normal { stream: u64 },
    Constant(f32),
}

impl Source {
    /// The weights in `dir` for this model. A folder without weights starts from a random initialization with `seed`.
    ///
    /// # Errors
    /// `Input` if files, headers, names, shapes, formats or the tie flag do not fit together; `Io`.
    pub fn open(dir: &Path, config: &ModelConfig, manifest: &Manifest, seed: u64) -> Result<Source> {
        let Some(mut folder) = folder::open(dir)? else {
            return Ok(Source::random(dir, config, manifest, seed));
        };
        let units = locate_all(dir, config, manifest, &mut folder)?;
        let head = folder.tensors.remove(HEAD);
        let redundant_head = head.filter(|_| manifest.find(HEAD).is_none());
        let mut source = Source { dir: dir.into(), files: folder.files, units, random: None, notices: folder.notices };
        if let Some((file, entry)) = redundant_head {
            source.check_redundant_head(file, &entry)?;
        }
        Ok(source)
    }

    /// A random initialization: normal with the configuration's deviation for matrices, ones for norms, zeros for
    /// biases. `dir` is named in the record and in errors.
    pub fn random(dir: &Path, config: &ModelConfig, manifest: &Manifest, seed: u64) -> Source {
        let mut stream = 0;
        let units = map_tensors(manifest, |tensor| {
            stream += 1;
            Ok(match () {
                () if tensor.shape.len() >= 2 => Place::Normal { stream: stream - 1 },
                () if tensor.name.ends_with(".bias") => Place::Constant(0.0),
                () => Place::Constant(1.0),
            })
        });
        Source {
            dir: dir.into(),
            files: Vec::new(),
            units: units.expect("no tensor of an initialization fails"),
            random: Some((seed, config.initializer_range)),
            notices: Vec::new(),
        }
    }

    /// One line per thing the user should know.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// What to keep with the run.
    pub fn record(&self) -> SourceRecord {
        let tensors = self.units.iter().flatten().map(|tensor| {
            let dtype = if let Place::File { dtype, .. } = tensor.place { dtype } else { Dtype::F32 };
            (tensor.name.clone(), dtype)
        });
        SourceRecord {
            model_dir: self.dir.clone(),
            seed: self.random.map(|(seed, _)| seed),
            tensors: tensors.collect(),
        }
    }

    /// Fills `out` with elements `start..` of a unit, across its tensors.
    ///
    /// # Errors
    /// `Input` naming tensor and element of a weight that is not finite or too large; `Io`.
    pub fn read_unit(&self, unit: usize, start: usize, out: &mut [f32], threads: usize) -> Result<()> {
        let tensors = &self.units[unit];
        let mut index = tensors.partition_point(|t| t.offset + t.len <= start);
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            let tensor = &tensors[index];
            let begin = at - tensor.offset;
            let (part, others) = rest.split_at_mut(rest.len().min(tensor.len - begin));
            self.read_tensor(tensor, begin, part, threads)?;
            at += part.len();
            index += 1;
            rest = others;
        }
        Ok(())
    }

    fn read_tensor(&self, tensor: &SourceTensor, start: usize, out: &mut [f32], threads: usize) -> Result<()> {
        match tensor.place {
            Place::File { file, position, dtype } => self.read_file(file, position, dtype, start, out)?,
            Place::Normal { stream } => {
                let (seed, deviation) = self.random.expect("only a random initialization has normal tensors");
                init::normal(seed, stream, deviation, start, out, threads);
            }
            Place::Constant(value) => out.fill(value),
        }
        let Some(index) = first_unfit(out) else { return Ok(()) };
        let place = match tensor.place {
            Place::File { file, .. } => &self.files[file].0,
            _ => &self.dir,
        };
        Err(Error::input(
            place.display().to_string(),
            format!("{}, element {}", tensor.name, start + index),
            "a finite weight below 3.39e38 in magnitude",
            format!("{:e}", out[index]),
        ))
    }

    fn read_file(&self, file: usize, position: u64, dtype: Dtype, start: usize, out: &mut [f32]) -> Result<()> {
        let (path, file) = &self.files[file];
        let read = |bytes: &mut [u8], element: usize| {
            let position = position + (element * dtype.bytes()) as u64;
            file.read_exact_at(bytes, position).map_err(|e| Error::io(path, "reading weights", e))
        };
        if dtype == Dtype::F32 {
            return read(bytemuck::cast_slice_mut(out), start);
        }
        let mut bytes = vec![0; READ_BYTES.min(out.len() * dtype.bytes())];
        let elements = READ_BYTES / dtype.bytes();
        for (index, out) in out.chunks_mut(elements).enumerate() {
            let bytes = &mut bytes[..out.len() * dtype.bytes()];
            read(bytes, start + index * elements)?;
            dtype.widen(bytes, out);
        }
        Ok(())
    }

    /// A tied model needs no head. One that is there anyway must be the embedding, or training would drop it silently.
    fn check_redundant_head(&mut self, file: usize, entry: &Entry) -> Result<()> {
        let path = self.files[file].0.display().to_string();
        let tied = "equal to the embedding, since tie_word_embeddings is true";
        let embedding = &self.units[0][0];
        let Place::File { file: other, position, dtype } = embedding.place else {
            unreachable!("a checkpoint's tensors are in its files")
        };
        let own = usable_dtype(&path, entry)?;
        let len = entry.shape.iter().product::<u64>();
        let differs = |found: String| Error::Input {
            place: path.clone(),
            field: HEAD.into(),
            expected: tied.into(),
            found,
            hint: Some("set tie_word_embeddings to false to train the head, or remove the tensor".into()),
        };
        if len != embedding.len as u64 {
            return Err(differs(format!("shape {:?}", entry.shape)));
        }
        let (mut head, mut table) = (vec![0.0; READ_BYTES], vec![0.0; READ_BYTES]);
        for start in (0..embedding.len).step_by(READ_BYTES) {
            let count = READ_BYTES.min(embedding.len - start);
            self.read_file(file, entry.position, own, start, &mut head[..count])?;
            self.read_file(other, position, dtype, start, &mut table[..count])?;
            if let Some(at) = (0..count).find(|&i| head[i].to_bits() != table[i].to_bits()) {
                return Err(differs(format!("element {} is {:e}, not {:e}", start + at, head[at], table[at])));
            }
        }
        self.notices.push(format!("{path}: {HEAD} equals the embedding and is not used: the head is tied"));
        Ok(())
    }
}

/// Finds every tensor of the manifest in the folder and takes it out; refuses what does not fit or is left over.
fn locate_all(
    dir: &Path,
    config: &ModelConfig,
    manifest: &Manifest,
    folder: &mut Folder,
) -> Result<Vec<Vec<SourceTensor>>> {
    // Formats first: a quantized checkpoint also has tensors that no model of ours has, and its format says more.
    for tensor in manifest.units.iter().flat_map(|u| &u.tensors) {
        if let Some((file, entry)) = folder.tensors.get(&tensor.name) {
            usable_dtype(&folder.files[*file].0.display().to_string(), entry)?;
        }
    }
    let units = map_tensors(manifest, |tensor| {
        let Some((file, entry)) = folder.tensors.remove(&tensor.name) else {
            return Err(missing(dir, config, &tensor.name));
        };
        let path = folder.files[file].0.display().to_string();
        if !entry.shape.iter().copied().eq(tensor.shape.iter().map(|d| *d as u64)) {
            return Err(Error::Input {
                place: path,
                field: tensor.name.clone(),
                expected: format!("shape {:?}", tensor.shape),
                found: format!("shape {:?}", entry.shape),
                hint: Some("config.json and the weights disagree".into()),
            });
        }
        Ok(Place::File { file, position: entry.position, dtype: usable_dtype(&path, &entry)? })
    })?;
    let mut buffers = 0;
    folder.tensors.retain(|name, _| {
        buffers += usize::from(folder::is_derived_buffer(name));
        !folder::is_derived_buffer(name)
    });
    if buffers > 0 {
        let what = "rotary_emb.inv_freq tensors not read: they follow from config.json";
        folder.notices.push(format!("{}: {buffers} {what}", dir.display()));
    }
    let mut unknown = folder.tensors.iter().filter(|(name, _)| !(config.tied && *name == HEAD));
    if let Some((name, (file, entry))) = unknown.next() {
        let found = format!("an unknown tensor, {} {:?}, one of {}", entry.dtype, entry.shape, 1 + unknown.count());
        let expected = format!("only tensors of a {:?} model with this config.json", config.family);
        return Err(Error::input(folder.files[*file].0.display().to_string(), name, expected, found));
    }
    Ok(units)
}

fn missing(dir: &Path, config: &ModelConfig, name: &str) -> Error {
    let hint = if name == HEAD {
        Some("tie_word_embeddings is false or absent in config.json; set it to true if the head is the embedding")
    } else if name == EMBEDDING {
        Some("tensors are expected under the names of a causal language model (model.embed_tokens.weight, ...)")
    } else {
        None
    };
    Error::Input {
        place: dir.display().to_string(),
        field: name.into(),
        expected: format!("a tensor that a {:?} model with this config.json has", config.family),
        found: "no such tensor".into(),
        hint: hint.map(str::to_string),
    }
}

fn map_tensors(
    manifest: &Manifest,
    mut place: impl FnMut(&crate::model::Tensor) -> Result<Place>,
) -> Result<Vec<Vec<SourceTensor>>> {
    let mut of_tensor = |tensor: &crate::model::Tensor| {
        let place = place(tensor)?;
        Ok(SourceTensor { name: tensor.name.clone(), offset: tensor.offset, len: tensor.len, place })
    };
    manifest.units.iter().map(|unit| unit.tensors.iter().map(&mut of_tensor).collect()).collect()
}

fn usable_dtype(path: &str, entry: &Entry) -> Result<Dtype> {
    Dtype::from_name(&entry.dtype).ok_or_else(|| Error::Input {
        place: path.into(),
        field: entry.name.clone(),
        expected: "dtype F32, BF16 or F16".into(),
        found: entry.dtype.clone(),
        hint: Some("quantized and other formats are not trained; use a checkpoint in one of these".into()),
    })
}

/// Index of the first weight that the state cannot hold.
fn first_unfit(weights: &[f32]) -> Option<usize> {
    let magnitude = |w: &f32| w.to_bits() & 0x7FFF_FFFF;
    // The largest of a block first: without an early exit that loop uses the whole vector width.
    let unfit = |block: &[f32]| block.iter().map(magnitude).fold(0, u32::max) >= BITS_LIMIT;
    let block = weights.chunks(1_024).position(unfit)?;
    let start = block * 1_024;
    weights[start..].iter().position(|w| magnitude(w) >= BITS_LIMIT).map(|at| start + at)
}
