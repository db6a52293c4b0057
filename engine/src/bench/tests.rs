use super::*;
use crate::config::Backend;
use crate::error::Error;
use std::path::PathBuf;
use std::time::Duration;

const BLOCK: u32 = 64 << 10;

fn cell(reads: u32, is_random: bool) -> Cell {
    Cell { reads, is_random, block_bytes: BLOCK, depth: 4, has_checksums: true }
}

fn ground(dirs: &[&tempfile::TempDir]) -> Ground {
    let dirs: Vec<PathBuf> = dirs.iter().map(|dir| dir.path().to_path_buf()).collect();
    Ground::reserve(&dirs, 1 << 20).expect("a megabyte")
}

fn small() -> Setup {
    Setup { depth_max: 4, memory_bytes: 1 << 20, ..Setup::default() }
}

#[test]
fn bytes_move_as_the_cell_says_and_nothing_has_a_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let ground = ground(&[&dir]);
    for backend in [Backend::Auto, Backend::Pool] {
        let mut load = ground.load(&Setup { backend, ..small() }).expect("a load");
        assert!(backend == Backend::Auto || load.backend() == backend);
        for (reads, is_random) in [(0, false), (100, false), (70, true)] {
            let (mut count, mut written) = (0, 0);
            let is_over = |submitted, _| submitted >= 100 * u64::from(BLOCK);
            let each = |done: Done| {
                count += 1;
                written += u64::from(done.is_write);
            };
            let moved = load.run(&cell(reads, is_random), is_over, each).expect("moved");
            assert_eq!((count, written), (100, 100 - u64::from(reads)), "{backend} {reads}");
            assert_eq!(moved.write_bytes, written * u64::from(BLOCK));
            assert_eq!(moved.bytes(), 100 * u64::from(BLOCK));
        }
        assert!(load.write_and_sync(UNIT_BYTES).expect("durable") > Duration::ZERO);
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0);
    assert_eq!(ground.handle(0).expect("a handle").metadata().expect("its size").len(), 1 << 20);
}

#[test]
fn several_directories_take_turns() {
    let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
    let ground = ground(&[&dirs[0], &dirs[1]]);
    let mut load = ground.load(&small()).expect("a load");
    // Whoever is done goes on, so that files get about as much, not exactly: eight times what they hold together.
    let moved = load.run(&cell(0, false), |submitted, _| submitted >= 16 << 20, |_| ()).expect("moved");
    assert_eq!(moved.write_bytes, 16 << 20);
    // Both files were written over their whole length, and nowhere else.
    for index in 0..2 {
        let file = ground.handle(index).expect("a handle");
        let mut bytes = crate::io::file::AlignedBuf::new(1 << 20);
        std::os::unix::fs::FileExt::read_exact_at(&file, bytes.as_mut_slice(), 0).expect("read");
        assert!(bytes.as_slice().chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)), "file {index}");
        assert_eq!(file.metadata().expect("its size").len(), 1 << 20);
    }
}

#[test]
fn reserved_again_nothing_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let ground = ground(&[&dir]);
    let mut load = ground.load(&small()).expect("a load");
    load.run(&cell(0, false), |submitted, _| submitted >= 1 << 20, |_| ()).expect("moved");
    ground.renew().expect("reserved again");
    let mut bytes = crate::io::file::AlignedBuf::new(4096);
    let file = ground.handle(0).expect("a handle");
    std::os::unix::fs::FileExt::read_exact_at(&file, bytes.as_mut_slice(), 0).expect("read");
    assert!(bytes.as_slice().iter().all(|byte| *byte == 0));
}

#[test]
fn what_does_not_fit_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let ground = ground(&[&dir]);
    let mut load = ground.load(&small()).expect("a load");
    let good = cell(100, false);
    for (bad, part) in [
        (Cell { block_bytes: 1000, ..good }, "multiple of 4096"),
        (Cell { depth: 5, ..good }, "1 to 4"),
        (Cell { block_bytes: 512 << 10, ..good }, "exceed"),
        (Cell { block_bytes: 1 << 20, depth: 1, ..good }, "too large for a file"),
    ] {
        let refused = load.run(&bad, |_, _| true, |_| ()).expect_err("refused").to_string();
        assert!(refused.contains(part), "{refused}");
    }
    let nowhere = Ground::reserve(&[dir.path().join("none")], 1 << 20);
    assert!(matches!(nowhere, Err(Error::Io { .. })));
    let too_much = Ground::reserve(&[dir.path().to_path_buf()], u64::MAX / 2);
    assert!(matches!(too_much, Err(Error::NoSpace { .. })));
}

#[test]
fn reads_are_spread_evenly_and_places_are_those_of_the_pattern() {
    let mut order = Order::new(&cell(70, false), 16 * u64::from(BLOCK), 0);
    let turns: Vec<Turn> = (0..10).map(|_| order.turn()).collect();
    let offsets = |is_write: bool| -> Vec<u64> {
        turns.iter().filter(|turn| turn.is_write == is_write).map(|turn| turn.offset / u64::from(BLOCK)).collect()
    };
    assert_eq!(offsets(false), (0..7).collect::<Vec<u64>>());
    assert_eq!(offsets(true), [8, 9, 10]);
    assert!(!turns.windows(2).any(|two| two[0].is_write && two[1].is_write), "{turns:?}");
    let mut order = Order::new(&cell(100, true), 16 * u64::from(BLOCK), 0);
    let random: std::collections::BTreeSet<u64> = (0..400).map(|_| order.turn().offset / u64::from(BLOCK)).collect();
    assert_eq!(random, (0..16).collect(), "every place is met, and no other");
}

#[test]
fn a_ring_that_is_allowed_is_not_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let is_allowed = ground(&[&dir]).load(&Setup { backend: Backend::Uring, ..small() }).is_ok();
    assert_eq!(ring_refusal().is_none(), is_allowed);
    assert!(is_allowed || !registers(u64::from(UNIT_BYTES)));
}

#[test]
fn a_visitor_sees_what_moves() {
    struct Marks {
        written: u64,
        read: Vec<u64>,
    }
    impl Visit for Marks {
        fn before_write(&mut self, bytes: &mut [u8]) {
            bytes[..8].copy_from_slice(&self.written.to_le_bytes());
            self.written += 1;
        }

        fn after_read(&mut self, bytes: &[u8]) {
            self.read.push(u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")));
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let ground = ground(&[&dir]);
    let mut load = ground.load(&small()).expect("a load");
    let mut marks = Marks { written: 0, read: Vec::new() };
    for reads in [0, 100] {
        let is_over = |submitted, _| submitted >= 1 << 20;
        load.run_visited(&cell(reads, false), is_over, |_| (), &mut marks).expect("moved");
    }
    marks.read.sort_unstable();
    assert_eq!(marks.read, (0..16).collect::<Vec<u64>>());
    assert_eq!(load.memory().1, 1 << 20);
}
