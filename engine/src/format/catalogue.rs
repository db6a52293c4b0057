//! The catalogue: names, sizes and kinds of the regions and how their pages are dealt to volumes; written once when the
//! store is created.

use super::stripes::{SLOTS_MAX, Stripes};
use crate::config::{Kind, RegionSpec};
use bytemuck::{Pod, Zeroable};

const NAME_BYTES: usize = 40;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Record {
    name: [u8; NAME_BYTES],
    kind: u32,
    page_bytes: u32,
    pages: u32,
    zero: u32,
}

const RECORD_BYTES: usize = size_of::<Record>();
const _: () = assert!(RECORD_BYTES == 56);

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Head {
    regions: u32,
    slots: u32,
    stripe_bytes: u32,
    zero: u32,
}

const HEAD_BYTES: usize = size_of::<Head>();
const SLOT_BYTES: usize = size_of::<u16>();

/// Regions a store can have; bounds what a damaged count can make a reader allocate.
pub(crate) const REGIONS_MAX: usize = 1024;

/// Pages that a store can have: their table stays below 4 GiB.
const PAGES_MAX: u64 = u32::MAX as u64 / 16;

/// Largest page.
pub(crate) const PAGE_BYTES_MAX: u32 = 64 << 20;

/// Checks the regions of a store. The message names field, expected and found.
pub(crate) fn check_all(regions: &[RegionSpec]) -> Result<(), String> {
    if regions.is_empty() || regions.len() > REGIONS_MAX {
        return Err(format!("regions: expected 1 to {REGIONS_MAX}, found {}", regions.len()));
    }
    for (index, region) in regions.iter().enumerate() {
        check(region)?;
        if regions[..index].iter().any(|other| other.name == region.name) {
            return Err(format!("region names: expected to be unique, found {} twice", region.name));
        }
    }
    let pages: u64 = regions.iter().map(|r| u64::from(r.pages)).sum();
    if pages > PAGES_MAX {
        return Err(format!("pages of all regions: expected at most {PAGES_MAX}, found {pages}"));
    }
    Ok(())
}

fn check(spec: &RegionSpec) -> Result<(), String> {
    let name = &spec.name;
    if name.is_empty() || name.len() > NAME_BYTES {
        return Err(format!("region name: expected 1 to {NAME_BYTES} bytes, found {:?}", name));
    }
    if spec.page_bytes == 0 || !spec.page_bytes.is_multiple_of(4096) || spec.page_bytes > PAGE_BYTES_MAX {
        return Err(format!(
            "region {name}: page_bytes: expected a multiple of 4096 up to {PAGE_BYTES_MAX}, found {}",
            spec.page_bytes
        ));
    }
    if spec.pages == 0 {
        return Err(format!("region {name}: pages: expected at least 1, found 0"));
    }
    Ok(())
}

/// The catalogue's bytes: head, regions, slots.
pub(crate) fn encode(regions: &[RegionSpec], stripes: &Stripes) -> Vec<u8> {
    let (slots, stripe_bytes) = (stripes.slots(), stripes.bytes());
    let head = Head { regions: regions.len() as u32, slots: slots.len() as u32, stripe_bytes, zero: 0 };
    let mut bytes = bytemuck::bytes_of(&head).to_vec();
    for region in regions {
        let mut name = [0u8; NAME_BYTES];
        name[..region.name.len()].copy_from_slice(region.name.as_bytes());
        let kind = match region.kind {
            Kind::Checkpointed => 0,
            Kind::Scratch => 1,
            Kind::Frozen => 2,
        };
        let record = Record { name, kind, page_bytes: region.page_bytes, pages: region.pages, zero: 0 };
        bytes.extend_from_slice(bytemuck::bytes_of(&record));
    }
    for slot in slots {
        bytes.extend_from_slice(&slot.to_le_bytes());
    }
    bytes
}

/// Reads a catalogue; the message says what is wrong.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Vec<RegionSpec>, Stripes), String> {
    let head = bytes.first_chunk::<HEAD_BYTES>().ok_or("catalogue shorter than its head")?;
    let head: Head = bytemuck::pod_read_unaligned(head);
    let (count, slots) = (head.regions as usize, head.slots as usize);
    let bounded = (1..=REGIONS_MAX).contains(&count) && (1..=SLOTS_MAX).contains(&slots);
    if !bounded || bytes.len() != HEAD_BYTES + count * RECORD_BYTES + slots * SLOT_BYTES {
        return Err(format!("catalogue of {} bytes says {count} regions and {slots} stripe slots", bytes.len()));
    }
    let (records, slots) = bytes[HEAD_BYTES..].split_at(count * RECORD_BYTES);
    let regions: Vec<RegionSpec> = records.chunks_exact(RECORD_BYTES).map(decode_record).collect::<Result<_, _>>()?;
    check_all(&regions)?;
    let slots = slots.as_chunks::<SLOT_BYTES>().0.iter().map(|slot| u16::from_le_bytes(*slot)).collect();
    Ok((regions, Stripes::from_slots(head.stripe_bytes, slots)?))
}

fn decode_record(bytes: &[u8]) -> Result<RegionSpec, String> {
    let record: Record = bytemuck::pod_read_unaligned(bytes);
    let length = record.name.iter().position(|&b| b == 0).unwrap_or(NAME_BYTES);
    let name = std::str::from_utf8(&record.name[..length]).map_err(|_| "region name is not UTF-8")?;
    let kind = match record.kind {
        0 => Kind::Checkpointed,
        1 => Kind::Scratch,
        2 => Kind::Frozen,
        other => return Err(format!("region {name}: unknown kind {other}")),
    };
    Ok(RegionSpec { name: name.to_owned(), page_bytes: record.page_bytes, pages: record.pages, kind })
}
