//! What a launch needs to know of a cubin: the sizes of each kernel's parameters. A cubin is an ELF file; a kernel's
//! section `.nv.info.NAME` is a list of attributes, of which one a parameter tells its place and size.
//!
//! A launch compares them with its arguments, so that no kernel reads beyond what it is given.

/// Attribute of a parameter, and the format of attributes whose size stands in the header.
const PARAMETER: u8 = 0x17;
const SIZED: u8 = 0x04;

/// Sizes in bytes of the parameters of kernel `name`, in order.
pub(super) fn parameter_sizes(cubin: &[u8], name: &str) -> Result<Vec<usize>, String> {
    let info = section(cubin, &format!(".nv.info.{name}")).ok_or_else(|| format!("no kernel {name}"))?;
    let mut sizes = Vec::new();
    let mut rest = info;
    while let [format, attribute, low, high, tail @ ..] = rest {
        // Attributes of other formats hold their value in the two bytes of the size.
        let len = if *format == SIZED { usize::from(u16::from_le_bytes([*low, *high])) } else { 0 };
        let (value, next) = tail.split_at_checked(len).ok_or_else(|| format!("attributes of {name} are cut off"))?;
        if *format == SIZED && *attribute == PARAMETER {
            // u32 index, u16 ordinal, u16 offset, u32 flags with the size in its upper 14 bits.
            let ordinal = number(value, 4, 2).ok_or("a parameter without ordinal")?;
            let size = number(value, 8, 4).ok_or("a parameter without size")? >> 18;
            sizes.push((ordinal, size));
        }
        rest = next;
    }
    sizes.sort_unstable();
    if sizes.iter().enumerate().any(|(i, (ordinal, _))| i != *ordinal) {
        return Err(format!("parameters of {name} are no sequence"));
    }
    Ok(sizes.into_iter().map(|(_, size)| size).collect())
}

/// Content of the section `name` of a 64-bit little-endian ELF file.
fn section<'a>(elf: &'a [u8], name: &str) -> Option<&'a [u8]> {
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count, names) =
        (number(elf, 0x28, 8)?, number(elf, 0x3A, 2)?, number(elf, 0x3C, 2)?, number(elf, 0x3E, 2)?);
    let header = |i: usize| elf.get(table.checked_add(size * i)?..)?.get(..64);
    let content = |header: &[u8]| elf.get(number(header, 0x18, 8)?..)?.get(..number(header, 0x20, 8)?);
    let names = content(header(names)?)?;
    let named = |header: &&[u8]| {
        let at = number(header, 0, 4).and_then(|at| names.get(at..)).unwrap_or_default();
        at.starts_with(name.as_bytes()) && at.get(name.len()) == Some(&0)
    };
    content((0..count).filter_map(header).find(named)?)
}

/// The `len` bytes at `at` as a little-endian number.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let mut wide = [0; 8];
    wide[..len].copy_from_slice(bytes.get(at..)?.get(..len)?);
    usize::try_from(u64::from_le_bytes(wide)).ok()
}
