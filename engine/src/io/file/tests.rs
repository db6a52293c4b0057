//! Volume files on real file systems: the temporary folder, procfs (refuses direct I/O) and /dev/shm (is RAM).

use super::{AlignedBuf, VolumeFile, free_bytes};
use crate::config::DirectIo;
use crate::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const NAME: &str = "volume.mt";

fn fresh() -> (tempfile::TempDir, VolumeFile) {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = VolumeFile::create(dir.path(), NAME, DirectIo::Preferred).expect("create");
    (dir, file)
}

fn allocated_bytes(file: &VolumeFile) -> u64 {
    std::fs::metadata(file.path()).expect("metadata").blocks() * 512
}

#[test]
fn what_is_written_is_read_after_opening_again() {
    let (dir, file) = fresh();
    assert!(file.alignment().is_power_of_two() && (512..=4096).contains(&file.alignment()));
    // More than one chunk.
    let content: Vec<u8> = (0..(1u32 << 20) + 8192).map(|i| (i / 64) as u8).collect();
    file.write_at(4096, &content).expect("write");
    file.sync().expect("sync");
    drop(file);
    let file = VolumeFile::open(dir.path(), NAME, DirectIo::Preferred).expect("open");
    let mut found = vec![0; content.len()];
    file.read_at(4096, &mut found).expect("read");
    assert!(found == content);
    assert_eq!(file.len().expect("length"), content.len() as u64 + 4096);
}

#[test]
fn a_read_beyond_the_end_is_an_error() {
    let (_dir, file) = fresh();
    file.write_at(0, &[1; 4096]).expect("write");
    match file.read_at(0, &mut [0; 8192]) {
        Err(Error::Io { source, bytes: 8192, .. }) => assert_eq!(source.kind(), std::io::ErrorKind::UnexpectedEof),
        other => panic!("expected the end of the file, got {other:?}"),
    }
}

#[test]
#[should_panic(expected = "not aligned")]
fn a_misaligned_read_is_a_mistake() {
    let (_dir, file) = fresh();
    let _ = file.read_at(100, &mut [0; 4096]);
}

#[test]
fn there_is_one_file_and_it_is_made_once() {
    let (dir, _file) = fresh();
    let again = VolumeFile::create(dir.path(), NAME, DirectIo::Preferred);
    assert!(matches!(again, Err(Error::Exists { path }) if path == dir.path()));
    let other = tempfile::tempdir().expect("temp dir");
    let missing = VolumeFile::open(other.path(), NAME, DirectIo::Preferred);
    assert!(matches!(missing, Err(Error::NoStore { path }) if path == other.path()));
    let nowhere = VolumeFile::create(Path::new("/nonexistent"), NAME, DirectIo::Preferred);
    assert!(matches!(nowhere, Err(Error::Io { .. })));
}

#[test]
fn paths_that_cannot_be_are_errors() {
    let dir = tempfile::tempdir().expect("temp dir");
    let long = dir.path().join("x".repeat(300));
    assert!(matches!(VolumeFile::create(&long, NAME, DirectIo::Preferred), Err(Error::Io { .. })));
    assert!(matches!(VolumeFile::open(&long, NAME, DirectIo::Preferred), Err(Error::Io { .. })));
    std::fs::create_dir(dir.path().join(NAME)).expect("a directory in the way");
    assert!(matches!(VolumeFile::open(dir.path(), NAME, DirectIo::Preferred), Err(Error::Io { .. })));
}

#[test]
fn reserved_space_is_taken_and_given_back() {
    let (_dir, file) = fresh();
    file.reserve(8192, 1 << 20).expect("space for a MiB");
    assert_eq!(file.len().expect("length"), 8192 + (1 << 20));
    assert!(allocated_bytes(&file) >= 1 << 20);
    file.write_at(8192, &[7; 8192]).expect("write");
    file.punch(8192, 1 << 20).expect("punch");
    assert_eq!(file.len().expect("length"), 8192 + (1 << 20));
    assert!(allocated_bytes(&file) < 1 << 20);
    let mut found = [1; 8192];
    file.read_at(8192, &mut found).expect("read");
    assert!(found.iter().all(|b| *b == 0));
    file.reserve(0, 0).expect("nothing");
    file.punch(0, 0).expect("nothing");
}

#[test]
fn more_than_there_is_cannot_be_reserved() {
    let (dir, file) = fresh();
    file.reserve(0, 4096).expect("space for a block");
    let ask = free_bytes(dir.path()).expect("free space") + (1 << 40);
    match file.reserve(4096, ask) {
        Err(Error::NoSpace { path, need, free }) => {
            assert_eq!((path.as_path(), need), (dir.path(), ask));
            assert!(free < ask);
        }
        other => panic!("expected NoSpace, got {other:?}"),
    }
    assert_eq!(file.len().expect("length"), 4096, "a refusal changes nothing");
}

/// procfs takes no O_DIRECT, whatever the version.
#[test]
fn a_refusal_of_direct_io_is_said_once_or_is_an_error() {
    let dir = Path::new("/proc/self");
    let file = VolumeFile::open(dir, "comm", DirectIo::Preferred).expect("buffered");
    let notice = file.notice.as_deref().expect("a notice");
    assert!(notice.starts_with("/proc/self: direct I/O is refused"), "{notice}");
    assert!(matches!(VolumeFile::open(dir, "comm", DirectIo::Required), Err(Error::DirectIo { .. })));
}

#[test]
fn a_volume_in_ram_is_remarked_on() {
    let shm = Path::new("/dev/shm");
    let Ok(dir) = tempfile::tempdir_in(shm) else { return };
    let file = VolumeFile::create(dir.path(), NAME, DirectIo::Preferred).expect("create");
    let notice = file.notice.as_deref().expect("a notice");
    assert!(notice.contains("is RAM"));
    // Newer kernels take the flag there; older ones refuse it.
    let required = VolumeFile::open(dir.path(), NAME, DirectIo::Required);
    assert_eq!(required.is_err(), notice.contains("refused"));
    file.reserve(0, 8192).expect("space for two blocks");
    file.write_at(4096, &[3; 4096]).expect("write");
    let mut found = [0; 4096];
    file.read_at(4096, &mut found).expect("read");
    assert_eq!(found, [3; 4096]);
}

#[test]
fn buffers_are_aligned_and_zero() {
    for len in [0, 1, 4096, 10_000] {
        let mut buffer = AlignedBuf::new(len);
        assert_eq!((buffer.as_slice().len(), buffer.as_slice().as_ptr() as usize % 4096), (len, 0));
        assert!(buffer.as_mut_slice().iter().all(|b| *b == 0));
    }
}
