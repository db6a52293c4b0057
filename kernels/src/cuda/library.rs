//! Finding and opening NVIDIA's libraries by their files, so that the one which was chosen is the one that is used.
//!
//! Looked through, in this order: the folders of `MT_CUDA_PATH` (separated by `:`; a toolkit, a Python environment or
//! the folder of the library itself), what the system's loader finds, `CUDA_HOME` and `CUDA_PATH`, toolkits under
//! /usr/local and /opt, the active Python environment and conda environment, and the Python packages of the user and of
//! the system. The first file that opens and has a version that will do is used.
//!
//! It is not for the driver: libcuda comes with the kernel's module and is where the system's loader finds it.
#![allow(unsafe_code)]

use super::error::Error;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Folders to look through, in order.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Before what the system's loader finds.
    first: Vec<PathBuf>,
    /// After it.
    last: Vec<PathBuf>,
}

impl Search {
    /// From the process's environment.
    pub fn from_env() -> Search {
        let paths = |name| std::env::var_os(name).map(|v| std::env::split_paths(&v).collect()).unwrap_or_default();
        let first: Vec<PathBuf> = paths("MT_CUDA_PATH");
        let mut last: Vec<PathBuf> = Vec::new();
        for name in ["CUDA_HOME", "CUDA_PATH"] {
            last.extend(paths(name));
        }
        for parent in ["/usr/local", "/opt"] {
            last.extend(children(Path::new(parent)).into_iter().filter(|p| name_of(p).starts_with("cuda")));
        }
        for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
            last.extend(paths(name));
        }
        // The environments of the Python and conda commands in PATH, active or not.
        for bin in paths("PATH") {
            let has = ["python3", "conda"].iter().any(|command| bin.join(command).exists());
            last.extend(bin.parent().filter(|_| has).map(Path::to_owned));
        }
        for home in paths("HOME") {
            last.push(home.join(".local"));
            last.extend(["miniconda3", "anaconda3", "miniforge3"].map(|name| home.join(name)));
        }
        last.extend(["/usr", "/usr/local", "/opt/conda", "/opt/venv"].map(PathBuf::from));
        Search { first, last }
    }

    /// Looks only into `folders` and where the system's loader looks.
    pub fn only(folders: Vec<PathBuf>) -> Search {
        Search { first: folders, last: Vec::new() }
    }

    /// Opens the first file of library `stem` (such as "libnvrtc") that `accept` makes something of.
    ///
    /// # Errors
    /// [`Error::NoLibrary`] with every file tried and what `accept` said of it.
    pub(super) fn open<T>(
        &self,
        library: &'static str,
        stem: &str,
        majors: &[u32],
        needed: String,
        mut accept: impl FnMut(Library) -> Result<T, String>,
    ) -> Result<T, Error> {
        let mut tried = Vec::new();
        let mut seen = BTreeSet::new();
        let system = majors.iter().map(|major| PathBuf::from(format!("{stem}.so.{major}")));
        let named = |folders: &[PathBuf]| -> Vec<PathBuf> { folders.iter().flat_map(|f| files(f, stem)).collect() };
        for path in named(&self.first).into_iter().chain(system).chain(named(&self.last)) {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            if !seen.insert(real) {
                continue;
            }
            open_parts(&path, stem);
            match Library::open(&path).and_then(&mut accept) {
                Ok(found) => return Ok(found),
                // A bare name that the system's loader does not know is no file that was found.
                Err(_) if path.parent() == Some(Path::new("")) => {}
                Err(why) => tried.push((path, why)),
            }
        }
        Err(Error::NoLibrary { library, needed, tried })
    }
}

/// The libraries that are looked for: what they are called, and the stems of their files.
pub const LIBRARIES: [(&str, &str); 2] = [("NVRTC", "libnvrtc"), ("cuBLASLt", "libcublasLt")];

impl Search {
    /// The file that one of [`LIBRARIES`] is opened from; it stays open.
    ///
    /// # Errors
    /// [`Error::NoLibrary`] with every file tried.
    pub fn locate(&self, (library, stem): (&'static str, &str)) -> Result<PathBuf, Error> {
        self.open(library, stem, &[13, 12], "version 12.0 or newer".to_owned(), |_| Ok(()))?;
        // The system's loader may have found it where nobody looked: the process's map of its memory knows.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let begin = format!("{stem}.so");
        let mut files = maps.lines().filter_map(|line| line.split_once('/').map(|(_, path)| format!("/{path}")));
        let file = files.find(|path| name_of(Path::new(path)).starts_with(&begin));
        Ok(PathBuf::from(file.unwrap_or_else(|| begin.clone())))
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Entries of a folder in order of their names; none if it cannot be read.
fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut entries: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    entries.sort();
    entries
}

/// Files of library `stem` below `folder`, newest names first: in the folder itself, in the library folders of a
/// toolkit, and in the `nvidia` packages of a Python environment.
fn files(folder: &Path, stem: &str) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    for inside in ["lib64", "lib", "lib/x86_64-linux-gnu", "targets/x86_64-linux/lib"] {
        folders.push(folder.join(inside));
    }
    for python in children(&folder.join("lib")).into_iter().filter(|p| name_of(p).starts_with("python")) {
        for packages in ["site-packages", "dist-packages"] {
            let nvidia = children(&python.join(packages).join("nvidia"));
            folders.extend(nvidia.into_iter().map(|package| package.join("lib")));
        }
    }
    folders.extend(children(&folder.join("nvidia")).into_iter().map(|package| package.join("lib")));
    let begin = format!("{stem}.so.");
    let matching = |p: &PathBuf| name_of(p).starts_with(&begin);
    folders.iter().flat_map(|f| children(f).into_iter().filter(matching).rev()).collect()
}

/// Opens what a library at `path` opens itself when it works, which stands beside it: NVRTC 13.0 looks for
/// libnvrtc-builtins only where the system's loader does, and in a Python environment finds it only if it is open.
fn open_parts(path: &Path, stem: &str) {
    let begin = format!("{stem}-builtins.so.");
    let beside = path.parent().map(children).unwrap_or_default();
    for part in beside.into_iter().filter(|p| name_of(p).starts_with(&begin)) {
        // One that does not open is missed by the library, which says so.
        let _ = Library::open(&part);
    }
}

/// An open library. It stays open until the process ends, so what it holds may be called at any time.
#[derive(Clone, Copy)]
pub(super) struct Library {
    inner: &'static libloading::Library,
}

impl Library {
    fn open(path: &Path) -> Result<Library, String> {
        // SAFETY: the files are NVIDIA's libraries by their names; their initialisers are made to run at any time. The
        // user who sets the paths chooses what runs, as with any library path.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| e.to_string())?;
        Ok(Library { inner: Box::leak(Box::new(library)) })
    }

    /// The function `name`.
    ///
    /// # Safety
    /// `F` is an `extern "C"` function pointer with the signature that the library's documentation gives.
    pub(super) unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, String> {
        // SAFETY: the caller vouches for the signature; the library is never closed.
        let symbol = unsafe { self.inner.get::<F>(name.as_bytes()) };
        symbol.map(|symbol| *symbol).map_err(|_| format!("it has no function {name}"))
    }
}

/// Whether the driver's library can be opened. Asked before any other call of the driver, which would panic without it.
pub(super) fn driver_present() -> bool {
    static PRESENT: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    // SAFETY: opens and closes libcuda, whose initialisers are made to run at any time.
    *PRESENT.get_or_init(|| unsafe { cudarc::driver::sys::is_culib_present() })
}

#[cfg(test)]
mod tests;
