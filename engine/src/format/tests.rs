use super::*;
use crate::config::{Kind, RegionSpec};
use crate::format::layout::Side;
use crate::format::superblock::{Moved, Reject, State};
use crate::id::{RegionId, Run};

fn regions() -> Vec<RegionSpec> {
    let spec = |name: &str, page_bytes, pages, kind| RegionSpec { name: name.into(), page_bytes, pages, kind };
    vec![
        spec("a", 4096, 7, Kind::Checkpointed),
        spec("s", 8192, 3, Kind::Scratch),
        spec("f", 16384, 2, Kind::Frozen),
        spec("b", 4096, 5, Kind::Checkpointed),
    ]
}

fn superblock() -> Superblock {
    Superblock {
        uuid: [7; 16],
        volume: 0,
        volumes: 1,
        state: State::Committed,
        commit: 41,
        catalogue_bytes: 100,
        catalogue_checksum: 1,
        table_bytes: 2,
        table_checksum: 3,
        note_bytes: 4,
        note_checksum: 5,
        ledger: std::array::from_fn(|v| Moved { read_bytes: v as u64, write_bytes: 100 + v as u64 }),
    }
}

#[test]
fn a_superblock_survives_the_round_trip_and_no_single_bit_flip() {
    let mut block = vec![0u8; BLOCK as usize];
    superblock().encode(&mut block);
    assert_eq!(Superblock::decode(&block), Ok(superblock()));
    for bit in (0..block.len() * 8).step_by(if cfg!(miri) { 1_021 } else { 1 }) {
        block[bit / 8] ^= 1 << (bit % 8);
        // Not of a newer version either: the other copy is to be used.
        let expected = if bit < 64 { Reject::NotOurs } else { Reject::Damaged };
        assert_eq!(Superblock::decode(&block), Err(expected), "bit {bit}");
        block[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_newer_superblock_is_named_as_such() {
    let mut block = vec![0u8; BLOCK as usize];
    superblock().encode(&mut block);
    block[8] = 2;
    let (head, sum) = block.split_at_mut(BLOCK as usize - 8);
    sum.copy_from_slice(&checksum::page_checksum(head).to_le_bytes());
    assert_eq!(Superblock::decode(&block), Err(Reject::Newer { found: 2 }));
    assert_eq!(Superblock::decode(&vec![0u8; BLOCK as usize]), Err(Reject::NotOurs));
}

#[test]
fn a_catalogue_survives_the_round_trip_and_bad_ones_are_refused() {
    let stripes = Stripes::with_shares(8192, &[2.0, 1.0]);
    let bytes = catalogue::encode(&regions(), &stripes);
    assert_eq!(catalogue::decode(&bytes), Ok((regions(), stripes)));
    for length in 0..bytes.len() {
        assert!(catalogue::decode(&bytes[..length]).is_err());
    }
    let mut huge = bytes.clone();
    huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(catalogue::decode(&huge).is_err());
}

#[test]
fn a_table_with_unknown_flags_or_a_torn_entry_is_refused() {
    let entry = Entry { checksum: 9, flags: table::SECOND | table::WRITTEN };
    let bytes = bytemuck::bytes_of(&entry).repeat(3);
    assert_eq!(table::decode(&bytes), Some(vec![entry; 3]));
    assert_eq!(table::decode(&bytes[..20]), None);
    let bad = Entry { checksum: 9, flags: 4 };
    assert_eq!(table::decode(bytemuck::bytes_of(&bad)), None);
}

#[test]
fn extents_are_disjoint_and_inside_the_reserved_space() {
    for shares in [vec![1.0], vec![1.0, 1.0], vec![2.0, 1.0, 1.0]] {
        let layout = Layout::new(&regions(), &Stripes::with_shares(8192, &shares));
        let mut taken = vec![(0, 0, layout.table_offset(1) + layout.table_room)];
        taken.extend((1..layout.volumes()).map(|v| (v, 0, superblock::SUPERBLOCK_AREA_BYTES)));
        for (index, region) in regions().iter().enumerate() {
            for page in 0..region.pages {
                for side in [Side::First, Side::Second] {
                    if side == Side::Second && region.kind != Kind::Checkpointed {
                        continue;
                    }
                    let at = layout.extent(RegionId(index as u32), page, side);
                    let end = at.offset + u64::from(region.page_bytes);
                    assert!(at.offset.is_multiple_of(BLOCK));
                    let scratch = region.kind == Kind::Scratch;
                    let limits = (layout.reserved_bytes(at.volume), layout.total_bytes(at.volume));
                    assert!(end <= if scratch { limits.1 } else { limits.0 });
                    assert!(!scratch || at.offset >= limits.0);
                    taken.push((at.volume, at.offset, end));
                }
            }
        }
        taken.sort_unstable();
        assert!(taken.windows(2).all(|w| w[0].0 < w[1].0 || w[0].2 == w[1].1), "extents overlap or leave gaps");
        for volume in 0..layout.volumes() {
            let last = taken.iter().filter(|t| t.0 == volume).map(|t| t.2).max();
            assert_eq!(last, Some(layout.total_bytes(volume)));
        }
    }
}

#[test]
fn spans_of_a_run_cover_its_extents() {
    let layout = Layout::new(&regions(), &Stripes::with_shares(8192, &[2.0, 1.0]));
    for first in 0..7 {
        for count in 1..=7 - first {
            let run = Run { region: RegionId(0), first, count };
            for side in [Side::First, Side::Second] {
                let spans = layout.spans(run, side);
                let inside = |page: u32| {
                    let at = layout.extent(RegionId(0), page, side);
                    spans.iter().any(|s| s.0 == at.volume && s.1 <= at.offset && at.offset + 4096 <= s.1 + s.2)
                };
                assert!((first..first + count).all(inside));
                assert_eq!(spans.iter().map(|s| s.2).sum::<u64>(), u64::from(count) * 4096);
            }
        }
    }
}

#[test]
fn global_pages_go_both_ways() {
    let layout = Layout::new(&regions(), &Stripes::single());
    for global in 0..layout.pages {
        let (region, page) = layout.local_page(global);
        assert_eq!(layout.global_page(region, page), global);
    }
}
