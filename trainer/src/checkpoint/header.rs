//! The header of a safetensors file: eight bytes of length, that many bytes of JSON, then the tensors' bytes.
//!
//! What it is not: it does not judge which tensors a model needs, and it reads no weights.
//!
//! Invariants: nothing in the file is trusted. No memory is taken for what a length claims, only for what is there; the
//! tensors' ranges are within the file, do not overlap, leave no gap and have the bytes that dtype and shape give.

use super::dtype::header_bits;
use crate::error::{Error, Result};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Longest header or index that is read.
pub(crate) const LENGTH_MAX: u64 = 100_000_000;
/// Most dimensions of a tensor: a bound on what a header can make us hold.
const DIMENSIONS_MAX: usize = 16;

/// One tensor of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub name: String,
    /// As the header has it: one of the names that `header_bits` knows.
    pub dtype: String,
    pub shape: Vec<u64>,
    /// First byte of its data in the file.
    pub position: u64,
    /// Bytes of its data.
    pub bytes: u64,
}

/// Reads and checks the header of the file at `path`; entries in the order of their data.
///
/// # Errors
/// `Input` naming the file, and the tensor where it is one's fault.
pub(crate) fn read(file: &File, path: &Path) -> Result<Vec<Entry>> {
    let place = || path.display().to_string();
    let bytes_in_file = file.metadata().map_err(|e| Error::io(path, "reading its size", e))?.len();
    let mut reader = file;
    reader.seek(SeekFrom::Start(0)).map_err(|e| Error::io(path, "reading the header", e))?;
    let mut start = [0_u8; 8];
    if bytes_in_file < 8 {
        return Err(Error::input(place(), "header length", "8 bytes", format!("a file of {bytes_in_file} bytes")));
    }
    reader.read_exact(&mut start).map_err(|e| Error::io(path, "reading the header", e))?;
    let length = u64::from_le_bytes(start);
    if length > LENGTH_MAX || length > bytes_in_file - 8 {
        return Err(Error::Input {
            place: place(),
            field: "header length".into(),
            expected: format!("at most {} bytes", LENGTH_MAX.min(bytes_in_file - 8)),
            found: format!("{length} bytes in a file of {bytes_in_file}"),
            hint: foreign_format(&start),
        });
    }
    let json = BufReader::with_capacity(1 << 16, reader.take(length));
    let table: Table = serde_json::from_reader(json)
        .map_err(|e| Error::input(place(), "header", "a JSON object of tensors", e.to_string()))?;
    let mut tensors = table.0;
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let bytes_of_data =
        check_ranges(&tensors).map_err(|(field, expected, found)| Error::input(place(), field, expected, found))?;
    let expected = (8 + length).checked_add(bytes_of_data);
    if expected != Some(bytes_in_file) {
        let expected = expected.map_or_else(|| "less than 2^64 bytes".into(), |bytes| format!("{bytes} bytes"));
        return Err(Error::Input {
            place: place(),
            field: "file size".into(),
            expected,
            found: format!("{bytes_in_file} bytes"),
            hint: Some("the file is cut off or was appended to; fetch it again".into()),
        });
    }
    Ok(tensors
        .into_iter()
        .map(|(name, info)| Entry {
            name,
            dtype: info.dtype,
            shape: info.shape.0,
            position: 8 + length + info.data_offsets.0,
            bytes: info.data_offsets.1 - info.data_offsets.0,
        })
        .collect())
}

/// Checks tensors sorted by their ranges; gives the bytes of all data, or (field, expected, found).
fn check_ranges(tensors: &[(String, Info)]) -> std::result::Result<u64, (String, String, String)> {
    let mut end_before = 0;
    for (name, info) in tensors {
        let fail = |expected: String, found: String| Err((name.clone(), expected, found));
        let (begin, end) = info.data_offsets;
        let shape = &info.shape.0;
        let Some(bits) = header_bits(&info.dtype) else {
            return fail("a dtype that is known".into(), format!("{:?}", info.dtype));
        };
        if end < begin {
            return fail("data_offsets in order".into(), format!("[{begin}, {end}]"));
        }
        let all_bits = shape.iter().try_fold(1_u64, |n, d| n.checked_mul(*d)).and_then(|n| n.checked_mul(bits));
        let Some(all_bits) = all_bits else {
            return fail("a shape of less than 2^64 bits".into(), format!("{shape:?}"));
        };
        if all_bits % 8 != 0 || all_bits / 8 != end - begin {
            let expected = format!("{} bytes for {} {shape:?}", all_bits.div_ceil(8), info.dtype);
            return fail(expected, format!("data_offsets [{begin}, {end}], {} bytes", end - begin));
        }
        if begin != end_before {
            let what = if begin < end_before { "overlaps the tensor before" } else { "leaves a gap before it" };
            return fail(format!("data_offsets from {end_before}"), format!("[{begin}, {end}], which {what}"));
        }
        end_before = end;
    }
    Ok(end_before)
}

/// What the first bytes of a file that is no safetensors file say of it.
fn foreign_format(start: &[u8; 8]) -> Option<String> {
    let what = match start {
        [b'P', b'K', 3, 4, ..] | [0x80, 2..=5, ..] => "a pickle of PyTorch; save it as safetensors",
        b"version " => "a Git LFS pointer; fetch the file itself",
        [b'G', b'G', b'U', b'F', ..] => "a GGUF file; use the original safetensors checkpoint",
        [b'<', ..] => "a web page; fetch the file itself",
        _ => return None,
    };
    Some(format!("this looks like {what}"))
}

/// What a header says of a tensor.
#[derive(serde::Deserialize)]
struct Info {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// All tensors of a header; a name that comes twice is an error, which a plain map would hide.
struct Table(Vec<(String, Info)>);

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Table, D::Error> {
        struct Tensors;
        impl<'de> Visitor<'de> for Tensors {
            type Value = Table;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Table, A::Error> {
                let mut seen = HashSet::new();
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(de::Error::custom(format!("the key {name:?} twice")));
                    }
                    let named = |e: A::Error| de::Error::custom(format!("{name}: {e}"));
                    if name == "__metadata__" {
                        map.next_value::<Option<UniqueStrings>>().map_err(named)?;
                    } else {
                        let info = map.next_value().map_err(named)?;
                        tensors.push((name, info));
                    }
                }
                Ok(Table(tensors))
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}

/// A shape of few dimensions.
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Shape, D::Error> {
        struct Dimensions;
        impl<'de> Visitor<'de> for Dimensions {
            type Value = Shape;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "at most {DIMENSIONS_MAX} dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> std::result::Result<Shape, A::Error> {
                let mut dimensions = Vec::new();
                while let Some(dimension) = sequence.next_element()? {
                    if dimensions.len() == DIMENSIONS_MAX {
                        return Err(de::Error::invalid_length(dimensions.len() + 1, &self));
                    }
                    dimensions.push(dimension);
                }
                Ok(Shape(dimensions))
            }
        }
        deserializer.deserialize_seq(Dimensions)
    }
}

/// An object of strings whose keys come once.
pub(crate) struct UniqueStrings(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for UniqueStrings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<UniqueStrings, D::Error> {
        struct Strings;
        impl<'de> Visitor<'de> for Strings {
            type Value = UniqueStrings;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<UniqueStrings, A::Error> {
                let mut strings = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if strings.insert(key.clone(), value).is_some() {
                        return Err(de::Error::custom(format!("the key {key:?} twice")));
                    }
                }
                Ok(UniqueStrings(strings))
            }
        }
        deserializer.deserialize_map(Strings)
    }
}
