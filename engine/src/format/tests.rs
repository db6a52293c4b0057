use super::*;
use crate::config::{Kind, RegionSpec};
use crate::format::layout::Side;
use crate::format::superblock::{Reject, State};
use crate::id::RegionId;

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
        ledger_read_bytes: 6,
        ledger_write_bytes: 7,
    }
}

#[test]
fn a_superblock_survives_the_round_trip_and_no_single_bit_flip() {
    let mut block = vec![0u8; BLOCK as usize];
    superblock().encode(&mut block);
    assert_eq!(Superblock::decode(&block), Ok(superblock()));
    for bit in 0..block.len() * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&block).is_err(), "bit {bit} flipped unseen");
        block[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_newer_superblock_is_named_as_such() {
    let mut block = vec![0u8; BLOCK as usize];
    superblock().encode(&mut block);
    block[8] = 2;
    assert_eq!(Superblock::decode(&block), Err(Reject::Newer { found: 2 }));
    assert_eq!(Superblock::decode(&vec![0u8; BLOCK as usize]), Err(Reject::NotOurs));
}

#[test]
fn a_catalogue_survives_the_round_trip_and_bad_ones_are_refused() {
    let bytes = catalogue::encode(&regions());
    assert_eq!(catalogue::decode(&bytes), Ok(regions()));
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
    let layout = Layout::new(&regions());
    let mut taken = vec![(0, layout.table_offset(1) + layout.table_room)];
    for (index, region) in regions().iter().enumerate() {
        for page in 0..region.pages {
            for side in [Side::First, Side::Second] {
                if side == Side::Second && region.kind != Kind::Checkpointed {
                    continue;
                }
                let at = layout.extent(RegionId(index as u32), page, side).offset;
                let end = at + u64::from(region.page_bytes);
                assert!(at.is_multiple_of(BLOCK));
                let limit = if region.kind == Kind::Scratch { layout.total_bytes } else { layout.reserved_bytes };
                assert!(end <= limit);
                taken.push((at, end));
            }
        }
    }
    taken.sort_unstable();
    assert!(taken.windows(2).all(|w| w[0].1 <= w[1].0), "extents overlap");
    assert_eq!(taken.last().map(|e| e.1), Some(layout.total_bytes));
}

#[test]
fn global_pages_go_both_ways() {
    let layout = Layout::new(&regions());
    for global in 0..layout.pages {
        let (region, page) = layout.local_page(global);
        assert_eq!(layout.global_page(region, page), global);
    }
}
