//! What can go wrong with a GPU, with what was found and what is needed.

use std::path::PathBuf;

/// An error of the GPU or of its libraries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver's library cannot be opened.
    #[error("no NVIDIA driver: libcuda.so.1 cannot be opened; needed: a driver for CUDA {needed} or newer")]
    NoDriver {
        /// Least version of CUDA.
        needed: Version,
    },
    /// The driver is older than this program needs.
    #[error("the NVIDIA driver supports CUDA {found}; needed: {needed} or newer")]
    DriverTooOld {
        /// Version of CUDA that the driver supports.
        found: Version,
        /// Least version of CUDA.
        needed: Version,
    },
    /// There is no such device.
    #[error("no CUDA device {asked}: the driver shows {found}")]
    NoDevice {
        /// Index asked for.
        asked: usize,
        /// Number of devices.
        found: usize,
    },
    /// The device is older than the kernels need.
    #[error("device {name} has compute capability {found}; needed: {needed} or newer")]
    DeviceTooOld {
        /// Name of the device.
        name: String,
        /// Its compute capability.
        found: Version,
        /// The least that has bf16 arithmetic.
        needed: Version,
    },
    /// No file of that library was found, or none could be used.
    #[error("no usable {library} (needed: {needed}); {}set MT_CUDA_PATH to a folder that has it", list_tried(.tried))]
    NoLibrary {
        /// Name of the library.
        library: &'static str,
        /// Versions that would do.
        needed: String,
        /// Files that were tried, and what is wrong with each.
        tried: Vec<(PathBuf, String)>,
    },
    /// A source does not compile.
    #[error("NVRTC {version} cannot compile {source_name} for {arch}:\n{log}")]
    Compile {
        /// Version of NVRTC.
        version: Version,
        /// Name of the source.
        source_name: String,
        /// The target.
        arch: String,
        /// What the compiler says.
        log: String,
    },
    /// A cubin is not what the compiler should have made.
    #[error("cubin of {source_name}: {reason}")]
    Cubin {
        /// Name of the source.
        source_name: String,
        /// What is wrong.
        reason: String,
    },
    /// A call of the driver failed.
    #[error("{call} failed: {text}")]
    Driver {
        /// What was being done.
        call: &'static str,
        /// Name and description of the error.
        text: String,
    },
    /// A call of cuBLASLt failed.
    #[error("{call} failed: {text}")]
    Product {
        /// What was being done, on which shape.
        call: String,
        /// Description of the error.
        text: String,
    },
}

impl Error {
    /// Whether the machine lacks what is needed: a driver, a device or a library of the right version.
    pub fn is_missing(&self) -> bool {
        use Error::{DeviceTooOld, DriverTooOld, NoDevice, NoDriver, NoLibrary};
        matches!(self, NoDriver { .. } | DriverTooOld { .. } | NoDevice { .. } | DeviceTooOld { .. } | NoLibrary { .. })
    }
}

/// A version, or a compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Before the dot.
    pub major: u32,
    /// After the dot.
    pub minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn list_tried(files: &[(PathBuf, String)]) -> String {
    if files.is_empty() {
        return "none found; ".to_owned();
    }
    let each: Vec<String> = files.iter().map(|(path, why)| format!("{}: {why}", path.display())).collect();
    format!("found {}; ", each.join(", "))
}
