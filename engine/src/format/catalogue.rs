//! The catalogue: names, sizes and kinds of the regions, written once when the store is created.

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
const HEAD_BYTES: usize = 8;

/// Regions a store can have; bounds what a damaged count can make a reader allocate.
pub(crate) const REGIONS_MAX: usize = 1024;

/// Largest page.
pub(crate) const PAGE_BYTES_MAX: u32 = 64 << 20;

/// Checks one region's numbers. The message names field, expected and found.
pub(crate) fn check(spec: &RegionSpec) -> Result<(), String> {
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

/// The catalogue's bytes.
pub(crate) fn encode(regions: &[RegionSpec]) -> Vec<u8> {
    let mut bytes = vec![0u8; HEAD_BYTES];
    bytes[..4].copy_from_slice(&(regions.len() as u32).to_le_bytes());
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
    bytes
}

/// Reads a catalogue; the message says what is wrong.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<RegionSpec>, String> {
    let head = bytes.first_chunk::<4>().ok_or("catalogue shorter than its head")?;
    let count = u32::from_le_bytes(*head) as usize;
    if count == 0 || count > REGIONS_MAX || bytes.len() != HEAD_BYTES + count * RECORD_BYTES {
        return Err(format!("catalogue of {} bytes says {count} regions", bytes.len()));
    }
    bytes[HEAD_BYTES..].chunks_exact(RECORD_BYTES).map(decode_record).collect()
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
    let spec = RegionSpec { name: name.to_owned(), page_bytes: record.page_bytes, pages: record.pages, kind };
    check(&spec)?;
    Ok(spec)
}
