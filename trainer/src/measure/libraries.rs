//! What a run on a GPU needs of the machine: the driver with a GPU, and NVIDIA's libraries. Looks and measures nothing.

use mt_kernels::cuda::{Error, Gpu, LIBRARIES, Search};
use std::path::PathBuf;

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Libraries {
    /// The first GPU.
    pub gpu: Found,
    /// Each library's name, and its file or why there is none that can be used.
    pub files: Vec<(&'static str, Result<PathBuf, String>)>,
}

/// A GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// It opens; its name.
    Good(String),
    /// There is no driver or no GPU; which.
    Absent(String),
    /// There is one that cannot be used; why.
    Broken(String),
}

impl Libraries {
    /// Looks where runs look.
    pub fn look() -> Libraries {
        let search = Search::from_env();
        let gpu = match Gpu::open(0, &search, None) {
            Ok(gpu) => Found::Good(gpu.name().to_owned()),
            Err(error @ (Error::NoDriver { .. } | Error::NoDevice { .. })) => Found::Absent(error.to_string()),
            Err(error) => Found::Broken(error.to_string()),
        };
        let locate = |library: (&'static str, &str)| search.locate(library).map_err(|error| error.to_string());
        Libraries { gpu, files: LIBRARIES.map(|library| (library.0, locate(library))).to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_library_has_a_file_or_a_reason() {
        let found = Libraries::look();
        assert_eq!(found.files.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["NVRTC", "cuBLASLt"]);
        for (name, file) in &found.files {
            match file {
                Ok(file) => assert!(file.to_string_lossy().contains("lib"), "{file:?}"),
                Err(why) => assert!(why.contains(name) && why.contains("MT_CUDA_PATH"), "{why}"),
            }
        }
    }
}
