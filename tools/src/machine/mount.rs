//! Which mount holds a path, by /proc/self/mountinfo.

use std::path::{Path, PathBuf};

/// A line of /proc/self/mountinfo.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Mount {
    pub(super) at: PathBuf,
    pub(super) kind: String,
    pub(super) source: String,
    pub(super) options: Vec<String>,
}

/// The mount that holds a path: of those above it the last one of the longest.
pub(super) fn mount_of(mounts: &str, path: &Path) -> Option<Mount> {
    let above = mounts.lines().filter_map(mount).filter(|mount| path.starts_with(&mount.at));
    above.max_by_key(|mount| mount.at.components().count())
}

/// Reads a line: `id parent major:minor root mount-point options [tags] - kind source super-options`.
fn mount(line: &str) -> Option<Mount> {
    let (first, last) = line.split_once(" - ")?;
    let mut first = first.split(' ').skip(2);
    let (_device, _root, at, options) = (first.next()?, first.next()?, first.next()?, first.next()?);
    let mut last = last.split(' ');
    let (kind, source) = (last.next()?, last.next()?);
    let mut all: Vec<String> = options.split(',').map(str::to_owned).collect();
    let more = last.next().unwrap_or("").split(',').filter(|option| !option.is_empty());
    more.for_each(|option| {
        if !all.iter().any(|known| known == option) {
            all.push(option.to_owned());
        }
    });
    Some(Mount { at: PathBuf::from(unescaped(at)), kind: kind.to_owned(), source: unescaped(source), options: all })
}

/// White space stands as three octal digits there.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
25 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
26 25 0:21 / /dev/shm rw - tmpfs tmpfs rw,size=24684092k
27 25 259:1 / /data rw,noatime shared:3 master:1 - xfs /dev/nvme0n1p1 rw,inode64
28 27 259:2 / /data/with\\040space rw - btrfs /dev/nvme1n1 rw,compress=zstd:1
29 27 259:3 / /data rw,noatime - ext4 /dev/nvme2n1 rw
";

    #[test]
    fn the_mount_of_a_path_is_the_last_of_the_longest_above_it() {
        let of = |path: &str| mount_of(MOUNTS, Path::new(path)).unwrap();
        assert_eq!((of("/home/x").kind, of("/home/x").source), ("ext4".into(), "/dev/vda".into()));
        assert_eq!(of("/dev/shm/a").kind, "tmpfs");
        assert_eq!(of("/data/x").source, "/dev/nvme2n1", "the later one covers the earlier");
        assert_eq!(of("/database").source, "/dev/vda");
        let inner = of("/data/with space/x");
        assert_eq!((inner.kind, inner.options), ("btrfs".into(), vec!["rw".into(), "compress=zstd:1".into()]));
        assert_eq!(mount_of("nonsense\n", Path::new("/")), None);
    }
}
