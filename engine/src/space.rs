//! Free space where volumes are or are going to be.

use crate::error::Error;
use crate::io::file::free_bytes;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are free for volumes in these directories, all together; those on one file system share what it has. A
/// directory that does not exist yet counts for the nearest one above it that does.
///
/// # Errors
/// `Io`.
pub fn free(dirs: &[PathBuf]) -> Result<u64, Error> {
    let (mut seen, mut sum) = (Vec::new(), 0_u64);
    for dir in dirs {
        let dir = existing(dir);
        let failed = |source| Error::Io {
            doing: "asking the file system",
            path: dir.to_path_buf(),
            offset: 0,
            bytes: 0,
            source: Arc::new(source),
        };
        let device = std::fs::metadata(dir).map_err(failed)?.dev();
        if !seen.contains(&device) {
            seen.push(device);
            sum = sum.saturating_add(free_bytes(dir)?);
        }
    }
    Ok(sum)
}

/// The nearest directory at or above `dir` that exists.
pub fn existing(dir: &Path) -> &Path {
    dir.ancestors().find(|dir| !dir.as_os_str().is_empty() && dir.is_dir()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_on_one_file_system_share_its_space() {
        let dir = tempfile::tempdir().expect("a directory");
        let (a, b) = (dir.path().join("a/b"), dir.path().to_path_buf());
        assert_eq!(existing(&a), dir.path());
        let (one, both) = (free(std::slice::from_ref(&a)).expect("asked"), free(&[a, b]).expect("asked"));
        // Others write meanwhile.
        assert!(one > 0 && both < one + one / 2, "{one} {both}");
    }
}
