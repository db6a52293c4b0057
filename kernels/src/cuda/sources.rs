//! The CUDA files in this binary and the kernels in them.

use super::{adamw, attention, cross_entropy, embedding, linear, pieces, pointwise, rmsnorm, rope, split};
use std::fmt;

/// Files that sources include, by name.
pub(super) const HEADERS: [(&str, &str); 6] = [
    ("common.cuh", include_str!("../../cuda/common.cuh")),
    ("planes.cuh", include_str!("../../cuda/planes.cuh")),
    ("columns.cuh", include_str!("../../cuda/columns.cuh")),
    ("attention.cuh", include_str!("../../cuda/attention.cuh")),
    ("attention_mma.cuh", include_str!("../../cuda/attention_mma.cuh")),
    ("mma.cuh", include_str!("../../cuda/mma.cuh")),
];

/// A CUDA file with its definitions: what becomes one cubin.
#[derive(Debug)]
pub struct Source {
    /// Name of the file.
    pub file: &'static str,
    pub(super) text: &'static str,
    /// HEAD, where the file is compiled for several head dimensions.
    head: Option<u32>,
}

/// A source by its file's name in kernels/cuda.
macro_rules! source {
    ($file:literal, $head:expr) => {
        $crate::cuda::sources::Source::new(
            $file,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/", $file)),
            $head,
        )
    };
}
pub(super) use source;

/// All kernels, by their modules.
pub const KERNELS: [&[Kernel]; 11] = [
    &adamw::KERNELS,
    &split::KERNELS,
    &pieces::KERNELS,
    &pointwise::KERNELS,
    &linear::KERNELS,
    &rmsnorm::KERNELS,
    &rope::KERNELS,
    &embedding::KERNELS,
    &cross_entropy::KERNELS,
    &attention::plain::KERNELS,
    &attention::mma::KERNELS,
];

/// All sources, each once.
pub fn sources() -> Vec<&'static Source> {
    let mut sources: Vec<_> = KERNELS.iter().flat_map(|kernels| kernels.iter()).map(|kernel| kernel.source).collect();
    // The kernels of a source stand together.
    sources.dedup_by(|a, b| std::ptr::eq(*a, *b));
    sources
}

impl Source {
    pub(super) const fn new(file: &'static str, text: &'static str, head: Option<u32>) -> Source {
        Source { file, text, head }
    }

    /// The compiler's options for a target.
    pub(super) fn options(&self, arch: Arch) -> Vec<String> {
        let fixed = ["--std=c++17", "--fmad=false", "--ptxas-options=-v"].map(str::to_owned);
        let head = self.head.map(|head| format!("--define-macro=HEAD={head}"));
        [format!("--gpu-architecture={arch}")].into_iter().chain(fixed).chain(head).collect()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file)?;
        self.head.map_or(Ok(()), |head| write!(f, " (HEAD {head})"))
    }
}

/// An entry of a source with its launch limits.
#[derive(Debug)]
pub struct Kernel {
    /// Where it stands.
    pub source: &'static Source,
    /// Its name there.
    pub name: &'static str,
    /// Threads of a block.
    pub threads: u32,
    /// Most bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl Kernel {
    /// Without dynamic shared memory.
    pub(super) const fn new(source: &'static Source, name: &'static str, threads: u32) -> Kernel {
        Kernel { source, name, threads, shared_bytes: 0 }
    }

    /// With at most so much of it.
    pub(super) const fn with_shared(self, shared_bytes: u32) -> Kernel {
        Kernel { shared_bytes, ..self }
    }
}

/// A real architecture: compute capability major.minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// Before the dot.
    pub major: u32,
    /// After the dot.
    pub minor: u32,
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}
