//! What a creation replaces, on real files: what one left that did not finish, at whatever point, and nothing else.

use super::*;
use crate::config::Kind;
use crate::format::unfinished::mark;
use crate::io::memory::rng::SplitMix64;
use std::fs;
use std::os::unix::fs::symlink;

fn regions() -> Vec<RegionSpec> {
    vec![RegionSpec { name: "state".into(), page_bytes: 4096, pages: 9, kind: Kind::Checkpointed }]
}

/// Directories of a store of so many volumes, below one that goes with the test.
fn dirs(volumes: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
    let root = tempfile::tempdir().expect("a directory");
    let dirs: Vec<PathBuf> = (0..volumes).map(|n| root.path().join(format!("v{n}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).expect("a directory"));
    (root, dirs)
}

fn create(dirs: &[PathBuf]) -> Result<Vec<Vec<u8>>, Error> {
    let weights = vec![1.0; dirs.len()];
    let config = Config { volume_weights: weights, stripe_bytes: 4096, ..Config::new(dirs.to_vec(), 1 << 20) };
    let store = Store::create(&config, &regions())?;
    store.claim.keep();
    Ok(dirs.iter().map(|dir| fs::read(dir.join(FILE_NAME)).expect("a volume")).collect())
}

#[test]
fn what_a_creation_left_at_any_point_is_replaced() {
    for volumes in 1..=3 {
        let (_root, dirs) = dirs(volumes);
        let whole = create(&dirs).expect("nothing is there");
        // Each volume has come so far, the first ones further by one.
        let blank = |n: usize| vec![0; whole[n].len()];
        let stages = |n: usize| -> Vec<Option<Vec<u8>>> {
            let with = |records: Vec<u8>| {
                let mut bytes = records;
                bytes[..BLOCK as usize].copy_from_slice(&mark());
                Some(bytes)
            };
            let mut catalogue = blank(n);
            let area = SUPERBLOCK_AREA_BYTES as usize;
            catalogue[area..].copy_from_slice(&whole[n][area..]);
            let short = with(vec![0; BLOCK as usize]);
            let reserved = with(blank(n));
            vec![
                None,
                Some(Vec::new()),
                short,
                reserved,
                with(catalogue),
                with(whole[n].clone()),
                Some(whole[n].clone()),
            ]
        };
        let last = stages(0).len() - 1;
        for stage in 0..last {
            for reached in 0..=volumes {
                for (n, dir) in dirs.iter().enumerate() {
                    let path = dir.join(FILE_NAME);
                    let _ = fs::remove_file(&path);
                    if let Some(bytes) = &stages(n)[stage + usize::from(n < reached)] {
                        fs::write(path, bytes).expect("what was left");
                    }
                }
                let again = create(&dirs).unwrap_or_else(|e| panic!("{volumes} volumes, stage {stage}: {e}"));
                assert_eq!(again.len(), volumes);
                let lengths = |all: &[Vec<u8>]| all.iter().map(Vec::len).collect::<Vec<_>>();
                assert_eq!(lengths(&again), lengths(&whole));
            }
        }
    }
}

#[test]
fn files_of_others_are_refused_by_name_and_stay_as_they_are() {
    let zeros = |bytes: usize| vec![0; bytes];
    let mut late = zeros(1 << 20);
    late[20_000] = 1;
    let mut contents =
        vec![late, vec![7; 100_000], b"a few bytes".to_vec(), mark()[..4095].to_vec(), mark()[..80].to_vec()];
    contents.extend([1, 512, 4096, 8192, 12_288, 16_384, 20_480, 1 << 20].map(zeros));
    let mut rng = SplitMix64::new(5);
    contents.extend((0..40).map(|_| {
        let mut bytes = zeros(1 + rng.below(40_000) as usize);
        let from = rng.below(bytes.len() as u64) as usize;
        bytes[from..].iter_mut().for_each(|byte| *byte = rng.draw() as u8);
        bytes
    }));
    for (volumes, place) in [(1, 0), (2, 0), (2, 1), (3, 2)] {
        let (_root, dirs) = dirs(volumes);
        let path = dirs[place].join(FILE_NAME);
        for content in &contents {
            fs::write(&path, content).expect("somebody's file");
            match create(&dirs) {
                Err(Error::Damaged { path: named, .. }) => assert_eq!(named, path),
                other => panic!("{} bytes: {:?}", content.len(), other.err()),
            }
            assert!(fs::read(&path).expect("it is there") == *content, "{} bytes", content.len());
            for (n, dir) in dirs.iter().enumerate().filter(|(n, _)| *n != place) {
                assert_eq!(fs::read_dir(dir).expect("list").count(), 0, "volume {n} is as it was");
            }
        }
    }
}

#[test]
fn what_is_no_file_is_refused_by_name_and_stays() {
    let (root, dirs) = dirs(1);
    let path = dirs[0].join(FILE_NAME);
    let elsewhere = root.path().join("elsewhere");
    fs::write(&elsewhere, "").expect("a file");
    let refused = |what: &str| {
        match create(&dirs) {
            Err(Error::Damaged { path: named, .. }) => assert_eq!(named, path, "{what}"),
            other => panic!("{what}: {:?}", other.err()),
        }
        assert!(fs::symlink_metadata(&path).is_ok(), "{what} stays");
    };
    fs::create_dir(&path).expect("a directory");
    refused("a directory");
    fs::remove_dir(&path).expect("it is empty");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    refused("a pipe");
    let read_only = Config { read_only: true, ..Config::new(dirs.clone(), 0) };
    assert!(matches!(Store::peek(&read_only), Err(Error::Damaged { .. })), "a pipe is not waited for");
    for target in [elsewhere.as_path(), Path::new("/dev/null")] {
        fs::remove_file(&path).expect("it can be removed");
        symlink(target, &path).expect("a link");
        refused("a link");
    }
    assert!(elsewhere.exists());
}

#[test]
fn a_creation_that_has_ended_leaves_no_mark() {
    for volumes in 1..=3 {
        let (_root, dirs) = dirs(volumes);
        for bytes in create(&dirs).expect("nothing is there") {
            assert!(bytes[..BLOCK as usize].iter().all(|byte| *byte == 0), "the first block is empty again");
        }
    }
}
