//! What a launch needs to know of a cubin: the sizes of each kernel's parameters. A cubin is an ELF file; a kernel's
//! section `.nv.info.NAME` is a list of attributes, of which one a parameter tells its place and size.
//!
//! A launch compares them with its arguments, so that no kernel reads beyond what it is given.

use super::error::Error;
use super::sources::Kernel;

/// Attributes of a kernel: one for each parameter, and the size of all parameters together.
const PARAMETER: u8 = 0x17;
const PARAMETERS: u8 = 0x19;
/// Formats of attributes: the value follows, its size standing in the header; the value stands in the header.
const SIZED: u8 = 0x04;
const SHORT: u8 = 0x03;

/// Sizes in bytes of a kernel's parameters, in order.
///
/// # Errors
/// [`Error::Cubin`]: the kernel is not in it, or it is not written as NVRTC 12 and 13 write it.
pub fn parameter_sizes(cubin: &[u8], kernel: &Kernel) -> Result<Vec<usize>, Error> {
    let bad = |reason| Error::Cubin { source_name: kernel.source.to_string(), reason };
    parameters(cubin, kernel.name).map_err(|why| bad(format!("{}: {why}", kernel.name)))
}

fn parameters(cubin: &[u8], name: &str) -> Result<Vec<usize>, &'static str> {
    let (mut parameters, mut all) = (Vec::new(), None);
    let mut rest = section(cubin, &format!(".nv.info.{name}")).ok_or("no such kernel")?;
    while let [format, attribute, low, high, tail @ ..] = rest {
        let short = u16::from_le_bytes([*low, *high]).into();
        let (value, next) = tail.split_at_checked(if *format == SIZED { short } else { 0 }).ok_or("it is cut off")?;
        match (*format, *attribute) {
            (SIZED, PARAMETER) => {
                // u32 index, u16 ordinal, u16 offset, u32 flags with the size in its upper 14 bits.
                let field = |at, len| number(value, at, len).ok_or("a parameter is cut off");
                parameters.push((field(4, 2)?, field(6, 2)?, field(8, 4)? >> 18));
            }
            (SHORT, PARAMETERS) => all = Some(short),
            _ => {}
        }
        rest = next;
    }
    parameters.sort_unstable();
    // A parameter that was not found leaves a gap.
    let mut end = 0;
    for (i, (ordinal, offset, size)) in parameters.iter().enumerate() {
        // Eight bytes are the largest alignment of our parameters.
        if i != *ordinal || !(end..end + 8).contains(offset) {
            return Err("its parameters are no sequence");
        }
        end = offset + size;
    }
    if all != Some(end) {
        return Err("its parameters do not have the size of all");
    }
    Ok(parameters.into_iter().map(|(_, _, size)| size).collect())
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
