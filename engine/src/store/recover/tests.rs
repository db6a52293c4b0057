use super::*;
use crate::config::Kind;
use crate::format::Stripes;
use crate::format::table::{SECOND, WRITTEN};
use crate::format::unfinished::mark;
use crate::io::memory::rng::SplitMix64;
use crate::store::{blank, first_records};
use std::cell::Cell;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a volume, some of which may not read, and the longest read so far.
struct Image {
    bytes: Vec<u8>,
    unreadable: Vec<Range<u64>>,
    longest: Cell<u64>,
}

impl Image {
    fn new(bytes: Vec<u8>) -> Image {
        Image { bytes, unreadable: Vec::new(), longest: Cell::new(0) }
    }
}

impl Source for Image {
    fn path(&self) -> &Path {
        Path::new("image")
    }

    fn len(&self) -> Result<u64, Error> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let bytes = into.len() as u64;
        self.longest.set(self.longest.get().max(bytes));
        let end = offset + bytes;
        let is_bad = self.unreadable.iter().any(|range| range.start < end && offset < range.end);
        if is_bad || end > self.bytes.len() as u64 {
            let source = Arc::new(std::io::Error::from(ErrorKind::UnexpectedEof));
            return Err(Error::Io { doing: "reading", path: self.path().into(), offset, bytes, source });
        }
        into.copy_from_slice(&self.bytes[offset as usize..end as usize]);
        Ok(())
    }
}

fn regions() -> Vec<RegionSpec> {
    let spec = |name: &str, pages, kind| RegionSpec { name: name.into(), page_bytes: 4096, pages, kind };
    vec![spec("state", 5, Kind::Checkpointed), spec("scratch", 2, Kind::Scratch), spec("base", 3, Kind::Frozen)]
}

fn put(image: &mut [u8], offset: u64, bytes: &[u8]) {
    image[offset as usize..][..bytes.len()].copy_from_slice(bytes);
}

/// Writes a commit as the engine does: table, note, superblocks.
fn commit(image: &mut [u8], layout: &Layout, number: u64) {
    let entry = |page: u32| match page {
        5 | 6 => Entry::default(),
        _ => Entry { checksum: u64::from(page) * 77, flags: WRITTEN | if page < 5 { number % 2 * SECOND } else { 0 } },
    };
    let table: Vec<u8> = (0..layout.pages).flat_map(|page| bytemuck::bytes_of(&entry(page)).to_vec()).collect();
    let note = vec![number as u8; 37];
    let superblock = Superblock {
        state: State::Committed,
        commit: number,
        table_checksum: page_checksum(&table),
        note_bytes: note.len() as u32,
        note_checksum: page_checksum(&note),
        ..blank(layout, &regions(), [9; 16])
    };
    let slot = Superblock::slot(number);
    put(image, layout.table_offset(slot), &table);
    put(image, layout.note_offset(slot), &note);
    put_superblock(image, slot, &superblock);
}

fn put_superblock(image: &mut [u8], slot: u64, superblock: &Superblock) {
    let mut block = vec![0; BLOCK as usize];
    superblock.encode(&mut block);
    for copy in 0..2 {
        put(image, Layout::superblock_offset(slot, copy), &block);
    }
}

/// A store after this many commits.
fn image(commits: u64) -> (Vec<u8>, Layout) {
    let layout = Layout::new(&regions(), &Stripes::single());
    let mut image = vec![0; layout.total_bytes(0) as usize];
    for (offset, bytes) in first_records(&layout, &regions(), &blank(&layout, &regions(), [9; 16])) {
        put(&mut image, offset, &bytes);
    }
    (0..commits).for_each(|number| commit(&mut image, &layout, number));
    (image, layout)
}

/// The commit that an image opens at; `None`: none yet.
fn opened(source: &dyn Source) -> Result<Option<u64>, Error> {
    match look(source)? {
        Found::Nothing | Found::NoCommit(_) => Ok(None),
        Found::Store(superblock) => {
            let recovered = recover(source, &superblock)?;
            assert_eq!(recovered.regions, regions());
            assert_eq!(recovered.note, vec![superblock.commit as u8; 37]);
            Ok(Some(superblock.commit))
        }
    }
}

#[test]
fn the_newest_commit_is_found() {
    for commits in 0..5u64 {
        assert_eq!(opened(&Image::new(image(commits).0)).expect("it reads"), commits.checked_sub(1));
    }
}

#[test]
fn one_copy_that_does_not_read_is_covered_by_the_other() {
    let (bytes, layout) = image(4);
    let mut records: Vec<Range<u64>> = (0..4).map(|block| block * BLOCK..(block + 1) * BLOCK).collect();
    records.extend((0..2).map(|copy| {
        let at = layout.catalogue_offset + copy * layout.catalogue_room;
        at..at + BLOCK
    }));
    for record in records {
        let source = Image { unreadable: vec![record.clone()], ..Image::new(bytes.clone()) };
        assert_eq!(opened(&source).expect("the copy is there"), Some(3), "{record:?}");
    }
}

#[test]
fn a_slot_that_does_not_read_is_an_error_and_never_an_older_commit() {
    for commits in [3, 4] {
        let (bytes, layout) = image(commits);
        let slot = Superblock::slot(commits - 1);
        let copies = [0, 1].map(|copy| Layout::superblock_offset(slot, copy));
        let block = |at: u64| at..at + BLOCK;
        let source = Image { unreadable: copies.map(block).to_vec(), ..Image::new(bytes.clone()) };
        assert!(matches!(opened(&source), Err(Error::Io { .. })));
        // Torn in one copy and unreadable in the other: it may be the newest of all.
        let mut torn = bytes.clone();
        torn[copies[0] as usize + 50] ^= 1;
        let source = Image { unreadable: vec![block(copies[1])], ..Image::new(torn) };
        assert!(matches!(opened(&source), Err(Error::Io { .. })));
        let table = layout.table_offset(slot);
        let source = Image { unreadable: vec![block(table)], ..Image::new(bytes) };
        assert!(matches!(opened(&source), Err(Error::Io { .. })));
    }
}

#[test]
fn a_newer_version_counts_where_no_copy_is_known() {
    let (bytes, _) = image(4);
    let slot = Superblock::slot(3);
    let raise = |image: &mut [u8], copy| {
        let block = &mut image[Layout::superblock_offset(slot, copy) as usize..][..BLOCK as usize];
        block[8] = 9;
        let (record, sum) = block.split_at_mut(BLOCK as usize - 8);
        sum.copy_from_slice(&page_checksum(record).to_le_bytes());
    };
    let mut one = bytes;
    raise(&mut one, 0);
    assert_eq!(opened(&Image::new(one.clone())).expect("the copy is there"), Some(3));
    raise(&mut one, 1);
    assert!(matches!(opened(&Image::new(one)), Err(Error::Format { found: 9, .. })));
}

/// The sectors of `to` that a torn write of it over `from` has left.
fn torn(from: &[u8], to: &[u8], rng: &mut SplitMix64) -> Vec<u8> {
    let sectors = from.chunks(512).zip(to.chunks(512));
    sectors.flat_map(|(from, to)| if rng.below(2) == 0 { from } else { to }.to_vec()).collect()
}

#[test]
fn a_torn_creation_is_no_store_and_no_damage() {
    let (whole, _) = image(0);
    let (mut marked, mut unmarked) = (vec![0; whole.len()], whole.clone());
    put(&mut marked, 0, &mark());
    put(&mut unmarked, 0, &mark());
    let mut rng = SplitMix64::new(1);
    for _ in 0..300 {
        // The records are being written, then the mark is being taken away.
        for (from, to) in [(&marked, &unmarked), (&unmarked, &whole)] {
            assert_eq!(opened(&Image::new(torn(from, to, &mut rng))).expect("no damage"), None);
        }
    }
}

/// Whatever begins with zeros, or with a part of the mark, is somebody's.
#[test]
fn only_an_empty_file_and_a_marked_one_are_left_from_a_creation() {
    assert_eq!(opened(&Image::new(Vec::new())).expect("empty"), None);
    let lengths = [1, 511, 512, 4095, 4096, 4097, 8192, 16_383, 16_384, 16_385, 100_000];
    for length in lengths {
        let mut marked = mark();
        marked.resize(length, 0xee);
        let is_whole = length >= BLOCK as usize;
        assert_eq!(opened(&Image::new(marked)).is_ok(), is_whole, "{length} bytes after the mark");
        let mut late = vec![0; length];
        late[length - 1] = 1;
        for foreign in [vec![0; length], vec![7; length], late] {
            let Err(Error::Damaged { path, .. }) = opened(&Image::new(foreign)) else { panic!("{length} bytes") };
            assert_eq!(path, Path::new("image"));
        }
    }
    for at in 0..BLOCK as usize {
        let mut other = mark();
        other[at] ^= 1;
        other.resize(5 * BLOCK as usize, 0);
        assert!(matches!(opened(&Image::new(other)), Err(Error::Damaged { .. })), "byte {at} of the mark");
    }
}

/// A volume other than the lead has the superblock of its creation in one slot, and nothing in the other.
#[test]
fn one_superblock_is_enough_for_a_volume_that_is_not_the_lead() {
    let layout = Layout::new(&regions(), &Stripes::with_shares(4096, &[1.0, 1.0]));
    let superblock = Superblock { volume: 1, ..blank(&layout, &regions(), [9; 16]) };
    let mut bytes = vec![0; layout.total_bytes(1) as usize];
    for (offset, record) in first_records(&layout, &regions(), &superblock) {
        put(&mut bytes, offset, &record);
    }
    let unreadable = |blocks: &[u64]| Image {
        unreadable: blocks.iter().map(|block| block * BLOCK..(block + 1) * BLOCK).collect(),
        ..Image::new(bytes.clone())
    };
    for blocks in [&[][..], &[0], &[2], &[0, 2], &[1], &[3], &[0, 1, 2], &[0, 2, 3]] {
        let Ok(Found::NoCommit(Some(found))) = look(&unreadable(blocks)) else { panic!("{blocks:?}") };
        assert_eq!(*found, superblock, "{blocks:?}");
    }
    assert!(matches!(look(&unreadable(&[1, 3])), Err(Error::Io { .. })));
}

#[test]
fn an_image_that_was_cut_off_is_an_error() {
    let (bytes, layout) = image(2);
    for end in (0..layout.table_offset(2)).step_by(BLOCK as usize) {
        match opened(&Image::new(bytes[..end as usize].to_vec())) {
            Ok(commit) => assert!(end == 0 && commit.is_none(), "{end} bytes open at {commit:?}"),
            Err(error) => assert!(matches!(error, Error::Damaged { .. } | Error::Io { .. }), "{error}"),
        }
    }
}

/// Overwrites, zeroes, moves and flips parts of the records.
fn mutate(image: &mut [u8], end: u64, rng: &mut SplitMix64) {
    let at = rng.below(end) as usize;
    let bytes = 1 + rng.below(64).min(end - 1 - at as u64) as usize;
    match rng.below(5) {
        0 => image[at] ^= 1 << rng.below(8),
        1 => image[at..at + bytes].fill(rng.draw() as u8),
        2 => image[at..at + bytes].iter_mut().for_each(|byte| *byte = rng.draw() as u8),
        3 => {
            let from = rng.below(end - bytes as u64) as usize;
            image.copy_within(from..from + bytes, at);
        }
        _ => {
            let (from, to) = (rng.below(end / 512) as usize * 512, rng.below(end / 512) as usize * 512);
            image.copy_within(from..from + 512, to);
        }
    }
}

/// Reads a mutated image: whatever comes out, nothing panics and nothing is read that the image does not hold.
fn read_any(bytes: Vec<u8>) -> bool {
    let source = Image::new(bytes);
    let outcome = look(&source).and_then(|found| match found {
        Found::Nothing | Found::NoCommit(_) => Ok(None),
        Found::Store(superblock) => recover(&source, &superblock).map(Some),
    });
    assert!(source.longest.get() <= source.bytes.len() as u64, "{} bytes in one read", source.longest.get());
    match outcome {
        Ok(Some(recovered)) => {
            assert_eq!(recovered.table.len(), recovered.layout.pages as usize);
            assert!(recovered.table.len() * 16 <= source.bytes.len(), "a table larger than the image");
            true
        }
        _ => false,
    }
}

#[test]
fn mutated_records_never_panic_and_open_only_as_they_were_written() {
    let (whole, layout) = image(3);
    let mut rng = SplitMix64::new(2);
    let mut opened_at = [0u64; 3];
    for _ in 0..30_000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + rng.below(4) {
            mutate(&mut bytes, layout.table_offset(2), &mut rng);
        }
        if read_any(bytes.clone())
            && let Ok(Some(commit)) = opened(&Image::new(bytes))
        {
            opened_at[commit as usize] += 1;
        }
    }
    assert!(opened_at[2] > 10_000, "copies cover most of it: {opened_at:?}");
}

/// Fields that lie under a checksum that is right: what a bug or somebody with intent could write.
#[test]
fn records_that_lie_under_a_right_checksum_never_panic() {
    let (whole, layout) = image(3);
    let mut rng = SplitMix64::new(3);
    let mut opened = 0;
    for _ in 0..30_000 {
        let mut bytes = whole.clone();
        let mut superblock = match look(&Image::new(whole.clone())) {
            Ok(Found::Store(superblock)) => *superblock,
            _ => panic!("a store"),
        };
        let number = |rng: &mut SplitMix64| match rng.below(4) {
            0 => rng.below(1 << 16),
            1 => u64::MAX - rng.below(3),
            2 => 1 << rng.below(64),
            _ => rng.draw(),
        };
        let catalogue_at = layout.catalogue_offset as usize;
        for _ in 0..1 + rng.below(3) {
            match rng.below(8) {
                0 => superblock.catalogue_bytes = number(&mut rng) as u32,
                1 => superblock.table_bytes = number(&mut rng),
                2 => superblock.note_bytes = number(&mut rng) as u32,
                3 => superblock.commit = number(&mut rng),
                4 => superblock.volumes = number(&mut rng) as u16,
                _ => {
                    let at = catalogue_at + rng.below(layout.catalogue_bytes) as usize;
                    let value = number(&mut rng).to_le_bytes();
                    let bytes_max = (catalogue_at + layout.catalogue_bytes as usize - at).min(4);
                    bytes[at..at + bytes_max].copy_from_slice(&value[..bytes_max]);
                }
            }
        }
        let catalogue = &bytes[catalogue_at..][..(superblock.catalogue_bytes as usize).min(4096)];
        superblock.catalogue_checksum = page_checksum(catalogue);
        for slot in 0..2 {
            put_superblock(&mut bytes, slot, &superblock);
        }
        opened += u64::from(read_any(bytes));
    }
    assert!(opened > 0, "some lies are harmless");
}

/// Every byte of the records: the superblock and the catalogue are read from the other copy, the table and the note of
/// the newest commit are reported, the rest does not matter.
#[test]
fn one_flipped_bit_anywhere_in_the_records_is_covered_or_told() {
    let (whole, layout) = image(3);
    let newest = layout.table_offset(Superblock::slot(2));
    let is_told = |at: u64| {
        let note = layout.note_offset(Superblock::slot(2));
        (newest..newest + layout.table_bytes).contains(&at) || (note..note + 37).contains(&at)
    };
    let mut image = Image::new(whole);
    // Behind table and note there is room that no record uses: some of it.
    let used = |slot| layout.table_offset(slot)..layout.note_offset(slot) + BLOCK;
    for at in (0..layout.table_offset(0)).chain(used(0)).chain(used(1)) {
        let bits = if at.is_multiple_of(61) { 0..8 } else { at % 8..at % 8 + 1 };
        for bit in bits {
            image.bytes[at as usize] ^= 1 << bit;
            match opened(&image) {
                Ok(commit) => assert!(commit == Some(2) && !is_told(at), "byte {at} bit {bit}: opened at {commit:?}"),
                Err(Error::Damaged { what, .. }) => {
                    assert!(is_told(at) && what.contains("commit 2"), "byte {at} bit {bit}: {what}");
                }
                Err(error) => panic!("byte {at} bit {bit}: {error}"),
            }
            image.bytes[at as usize] ^= 1 << bit;
        }
    }
}
