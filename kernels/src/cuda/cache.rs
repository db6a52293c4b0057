//! Cubins kept in a folder, by content: a file's name is the hash of everything that the cubin depends on. A file holds
//! the hash of the cubin and the cubin; one that was torn or changed does not match and is compiled again. The folder
//! may be shared by processes and deleted at any time; where it cannot be written, nothing is kept.

use super::error::Version;
use super::sources::{Arch, HEADERS, Source};
use std::path::PathBuf;
use twox_hash::XxHash3_128;

/// Bytes of the hash before the cubin.
const HASH: usize = 16;

pub(super) struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    pub(super) fn new(folder: Option<PathBuf>) -> Cache {
        Cache { folder }
    }

    /// Name of the cubin's file.
    pub(super) fn key(&self, compiler: Version, source: &Source, arch: Arch) -> String {
        let mut all = format!("{compiler}\0{}\0{}\0", source.options(arch).join("\0"), source.text);
        for (name, text) in HEADERS {
            all += &format!("{name}\0{text}\0");
        }
        format!("{:032x}.cubin", XxHash3_128::oneshot(all.as_bytes()))
    }

    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let bytes = std::fs::read(self.folder.as_ref()?.join(key)).ok()?;
        let (hash, cubin) = bytes.split_at_checked(HASH)?;
        (XxHash3_128::oneshot(cubin).to_le_bytes() == *hash).then(|| cubin.to_vec())
    }

    /// Keeps a cubin if the folder can be written. Written under another name first: a reader sees all of it or none.
    pub(super) fn put(&self, key: &str, cubin: &[u8]) {
        let Some(folder) = &self.folder else { return };
        let bytes = [&XxHash3_128::oneshot(cubin).to_le_bytes(), cubin].concat();
        let part = folder.join(format!("{key}.{}", std::process::id()));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&part, bytes));
        if written.and_then(|()| std::fs::rename(&part, folder.join(key))).is_err() {
            // Nothing is lost but the time to compile again; the part may not exist.
            let _ = std::fs::remove_file(&part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::sources;

    #[test]
    fn what_was_kept_comes_back_and_a_changed_file_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path().join("new")));
        assert_eq!(cache.get("a"), None);
        cache.put("a", b"cubin");
        assert_eq!(cache.get("a").as_deref(), Some(&b"cubin"[..]));
        let file = folder.path().join("new/a");
        let whole = std::fs::read(&file).unwrap();
        for bad in [&whole[..whole.len() - 1], &[&whole[..], b"x"].concat(), b"", &whole[..5]] {
            std::fs::write(&file, bad).unwrap();
            assert_eq!(cache.get("a"), None);
        }
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
    }

    #[test]
    fn a_key_tells_sources_targets_and_compilers_apart() {
        let cache = Cache::new(None);
        let (old, new) = (Version { major: 12, minor: 8 }, Version { major: 12, minor: 9 });
        let (a, b) = (Arch { major: 8, minor: 0 }, Arch { major: 9, minor: 0 });
        let mut keys = std::collections::BTreeSet::new();
        let mut count = 0;
        for source in sources() {
            for (version, arch) in [(old, a), (old, b), (new, a)] {
                keys.insert(cache.key(version, source, arch));
                count += 1;
            }
        }
        assert_eq!(keys.len(), count);
    }
}
