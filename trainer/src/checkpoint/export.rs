//! Export: the weights of a store, streamed into a folder that other programs load.
//!
//! What it is not: a backup of the run (moments and progress stay in the store).
//!
//! Invariants: the folder appears whole under its name or not at all: everything is written and synced in a temporary
//! folder beside it, renamed at the end, and removed on an error; what a killed process left of one is removed by the
//! next export to the same name. Weights are rebuilt from both planes and rounded to
//! nearest even; those of a tensor whose format is the source's come back bit for bit if they were not trained. RAM is
//! bounded by a block of weights.

use super::async_files::{self, Files, OutFile, Work};
use super::carry;
use super::dtype::Dtype;
use super::import::BLOCK;
use super::source::SourceRecord;
use super::stream::{self, State};
use super::writer::{FilesPlan, WeightsWriter};
use crate::error::{Error, Part, Result};
use crate::input;
use crate::layout::{HI, LO};
use crate::model::{Manifest, ModelConfig};
use mt_engine::{Backend, Mode};
use mt_kernels::{Cpu, split};
use std::ffi::{OsStr, OsString};
use std::fs::{DirEntry, File};
use std::path::{Path, PathBuf};

/// The number format of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportDtype {
    /// Every tensor in this one.
    One(Dtype),
    /// Each tensor as in the checkpoint that training started from.
    Source,
}

/// What to export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportRequest {
    /// The number format.
    pub dtype: ExportDtype,
    /// Largest file in bytes of tensors; None: one file.
    pub max_shard_bytes: Option<u64>,
    /// Folder that the tokenizer's files are copied from.
    pub carry_from: PathBuf,
}

/// What an export wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportReport {
    /// Names of all files, those with weights first.
    pub files: Vec<String>,
    /// Tensors.
    pub tensors: usize,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// One line per thing the user should know.
    pub notices: Vec<String>,
}

/// Exports the weights of a store into a folder that was made for it. `progress` gets the bytes of weights done and all
/// (4 an element), after every block.
///
/// # Errors
/// `Input` if a weight does not fit the format; `Io`; the engine's. Nothing is left behind then. `Input` also where
/// something took the folder's name since it was made: the weights then are under the next free one, which the error
/// names.
pub fn export(
    folder: OutFolder,
    state: &State<'_>,
    config: &ModelConfig,
    record: &SourceRecord,
    request: &ExportRequest,
    cpu: &Cpu,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ExportReport> {
    let plan = plan_files(state.manifest, record, request)?;
    let index = plan.index();
    let config_json = carry::config_json(config, &plan.dtypes());
    let mut texts = vec![("config.json", config_json)];
    texts.extend(index);
    let work = WriteFiles { state, cpu, dir: &folder.path, plan: &plan, texts: &texts, progress };
    // Where the store's pages move on threads, whether by choice or because the kernel refuses more, so do these files;
    // the engine has said why.
    let is_plain = state.has_disk && state.engine.backend() == Backend::Pool;
    let written =
        if is_plain { async_files::block_on_std(work).map(|r| (r, None)) } else { async_files::block_on(work) };
    let (result, blocked) = written.map_err(|e| Error::io(&folder.path, "preparing to write", e))?;
    result?;
    let mut files: Vec<String> = plan.files.iter().map(|f| f.name.clone()).collect();
    files.extend(texts.iter().map(|(name, _)| name.to_string()));
    files.extend(carry::copy_files(&request.carry_from, &folder.path)?);
    let mut notices = folder.publish()?;
    let notice = |why| format!("the kernel refuses asynchronous file writing ({why}); plain files were used");
    notices.extend(blocked.map(notice));
    Ok(ExportReport { files, tensors: plan.dtypes().len(), bytes: plan.total_size, notices })
}

fn plan_files(manifest: &Manifest, record: &SourceRecord, request: &ExportRequest) -> Result<FilesPlan> {
    let tensors = || manifest.units.iter().flat_map(|u| &u.tensors);
    if request.dtype == ExportDtype::Source
        && let Some(tensor) = tensors().find(|t| !record.tensors.contains_key(&t.name))
    {
        let expected = "the format of every tensor in the checkpoint that training started from";
        return Err(Error::input("--dtype source", &tensor.name, expected, "none recorded"));
    }
    let dtype_of = |tensor: &crate::model::Tensor| match request.dtype {
        ExportDtype::One(dtype) => dtype,
        ExportDtype::Source => record.tensors[&tensor.name],
    };
    Ok(FilesPlan::new(manifest, dtype_of, request.max_shard_bytes))
}

/// The files of an export that hold bytes of ours.
struct WriteFiles<'a> {
    state: &'a State<'a>,
    cpu: &'a Cpu,
    dir: &'a Path,
    plan: &'a FilesPlan,
    texts: &'a [(&'static str, String)],
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Work for WriteFiles<'_> {
    type Output = Result<()>;

    async fn run<F: Files>(self, files: &F) -> Result<()> {
        let total = 4 * self.state.manifest.elements();
        let mut done = 0;
        let chunks = stream::chunks(self.state.manifest, self.state.layout);
        let mut weights = vec![0.0; chunks.iter().map(|(_, chunk)| chunk.len).max().unwrap_or(0).min(BLOCK)];
        let mut writer = WeightsWriter::new(files, self.dir, self.plan);
        let sweep = stream::begin(self.state, &[HI, LO], Mode::Read)?;
        for (_, chunk) in chunks {
            let hi = sweep.host(chunk.run(HI))?;
            let lo = sweep.host(chunk.run(LO))?;
            let (hi, lo): (&[u16], &[i16]) = (bytemuck::cast_slice(&hi), bytemuck::cast_slice(&lo));
            for start in (0..chunk.len).step_by(BLOCK) {
                let end = chunk.len.min(start + BLOCK);
                let weights = &mut weights[..end - start];
                split::join(self.cpu, &hi[start..end], &lo[start..end], weights);
                writer.push(weights).await?;
                done += 4 * weights.len() as u64;
                (self.progress)(done, total);
            }
        }
        sweep.finish()?;
        writer.finish();
        for (name, text) in self.texts {
            write_text(files, &self.dir.join(name), text).await?;
        }
        Ok(())
    }
}

async fn write_text<F: Files>(files: &F, path: &Path, text: &str) -> Result<()> {
    let mut file = files.create(path).await.map_err(|e| Error::io(path, "creating", e))?;
    file.write_all(text.as_bytes().to_vec(), 0).await.0.map_err(|e| Error::io(path, "writing", e))?;
    file.sync().await.map_err(|e| Error::io(path, "syncing", e))?;
    file.close().await.map_err(|e| Error::io(path, "closing", e))
}

/// What is refused, in messages, and what would be right.
const FIELD: &str = "export folder";
const EXPECTED: &str = "a folder that does not exist or is empty";

/// The folder of an export under its temporary name. It is removed unless it is published.
#[derive(Debug)]
pub struct OutFolder {
    out: PathBuf,
    path: PathBuf,
    published: bool,
    notices: Vec<String>,
}

impl OutFolder {
    /// Makes the temporary folder for `out`, which may exist if it is empty, and removes those that killed processes
    /// left.
    ///
    /// # Errors
    /// `Input` if `out` is in use; `Io`.
    pub fn create(out: &Path) -> Result<OutFolder> {
        let place = || out.display().to_string();
        let refuse = |found: &str| Err(Error::input(place(), FIELD, EXPECTED, found));
        input::folder_place(out, FIELD, EXPECTED)?;
        match std::fs::read_dir(out).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return refuse("a folder with files"),
            Ok(false) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(out, "listing the folder", e)),
        }
        let Some(name) = out.file_name() else { return refuse("a path that names no folder") };
        let mut partial = partial_prefix(name);
        partial.push(std::process::id().to_string());
        let path = parent(out).join(partial);
        let unmade = |error| input::unmade(out, FIELD, EXPECTED, "creating the folder", error);
        std::fs::create_dir_all(parent(out)).map_err(unmade)?;
        let notices = remove_leftovers(out);
        std::fs::create_dir(&path).map_err(unmade)?;
        Ok(OutFolder { out: out.to_owned(), path, published: false, notices })
    }

    /// Refuses a volume that has not this much room.
    ///
    /// # Errors
    /// `DoesNotFit`; `Io`.
    pub fn require_free(&self, bytes: u64) -> Result<()> {
        let free = mt_engine::free_bytes(&self.path)?;
        if free >= bytes {
            return Ok(());
        }
        Err(Error::DoesNotFit {
            part: Part::Disk,
            what: format!("the volume of the export folder {}", self.out.display()),
            need_bytes: bytes,
            have_bytes: free,
            hint: Some("name a folder on another volume with --export".to_owned()),
        })
    }

    /// Gives the folder its name, durably, and the lines that the user should know.
    fn publish(mut self) -> Result<Vec<String>> {
        sync_folder(&self.path)?;
        let out = self.rename()?;
        self.published = true;
        sync_folder(parent(&out))?;
        if out == self.out {
            return Ok(std::mem::take(&mut self.notices));
        }
        Err(Error::Input {
            place: self.out.display().to_string(),
            field: FIELD.to_owned(),
            expected: "a new folder, or an empty one".to_owned(),
            found: "something that was not there before".to_owned(),
            hint: Some(format!("the model is in {}", out.display())),
        })
    }

    /// Renames the folder to its name or, where something has that by now, to the next free one.
    fn rename(&self) -> Result<PathBuf> {
        let mut out = self.out.clone();
        for number in 2.. {
            match std::fs::rename(&self.path, &out) {
                Ok(()) => break,
                Err(e) if is_taken(&e) => {
                    let mut name = self.out.clone().into_os_string();
                    name.push(format!("-{number}"));
                    out = name.into();
                }
                Err(e) => return Err(Error::io(out, "renaming the finished folder", e)),
            }
        }
        Ok(out)
    }
}

/// Whether a folder cannot be renamed to a name because something with content has it.
fn is_taken(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory)
}

impl Drop for OutFolder {
    fn drop(&mut self) {
        if !self.published {
            // An error is being reported already; what cannot be removed keeps a name that says what it is.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Name of a temporary folder for `name`, before the process id.
fn partial_prefix(name: &OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".partial-");
    prefix
}

/// Removes the temporary folders that killed processes left of exports to `out`. Gives a line for each.
fn remove_leftovers(out: &Path) -> Vec<String> {
    let Some(prefix) = out.file_name().map(partial_prefix) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(parent(out)) else { return Vec::new() };
    let is_leftover = |entry: &DirEntry| {
        let name = entry.file_name();
        let pid = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let pid = pid.and_then(|pid| std::str::from_utf8(pid).ok()).and_then(|pid| pid.parse().ok());
        entry.file_type().is_ok_and(|kind| kind.is_dir()) && pid.is_some_and(is_dead)
    };
    let paths = entries.flatten().filter(is_leftover).map(|entry| entry.path());
    let remove = |path: PathBuf| match std::fs::remove_dir_all(&path) {
        Ok(()) => format!("removed {}, which an export that was killed had left", path.display()),
        Err(error) => format!("{} is left of an export that was killed and does not go: {error}", path.display()),
    };
    paths.map(remove).collect()
}

/// Whether no process of this id can be at work on an export. This process has not begun its own yet: a folder with its
/// id is that of a dead process whose id came again. Where processes cannot be looked up, they count as alive.
fn is_dead(pid: u32) -> bool {
    let processes = Path::new("/proc");
    pid == std::process::id() || processes.join("self").exists() && !processes.join(pid.to_string()).exists()
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync_folder(path: &Path) -> Result<()> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|e| Error::io(path, "syncing the folder", e))
}
