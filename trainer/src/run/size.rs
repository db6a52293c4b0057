//! Sizes in bytes as people write them: `600MiB`, `2GB`, `1.5GiB`.
//!
//! KiB, MiB, GiB, TiB are powers of 1,024; kB, MB, GB, TB powers of 1,000; a bare number is bytes. Case does not
//! matter.

use crate::digits::digits;

const UNITS: [(&str, u64); 10] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
    ("", 1),
];

/// Reads a size.
///
/// # Errors
/// What was expected and found, as text, where it is no size or none that fits 64 bits.
pub fn parse(text: &str) -> Result<u64, String> {
    let expected = || format!("expected a size such as 600MiB, 2GB or 1.5GiB, found \"{text}\"");
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let unit = unit.trim();
    let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale).ok_or_else(expected)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(expected);
    }
    let bytes = number.parse::<f64>().map_err(|_| expected())? * scale as f64;
    // 2^63 is far above any machine; above it the conversion would saturate silently.
    if bytes.is_finite() && bytes < 9.2e18 && scale > 1 { Ok(bytes.round() as u64) } else { Err(expected()) }
}

/// A size for people: three digits and a binary unit.
pub fn human(bytes: u64) -> String {
    in_unit(bytes, 1_024.0, ["B", "KiB", "MiB", "GiB", "TiB"])
}

/// Bytes for people in powers of 1,000, as drives are rated: three digits and a unit.
pub fn decimal(bytes: u64) -> String {
    in_unit(bytes, 1_000.0, ["B", "kB", "MB", "GB", "TB"])
}

/// In the unit, each so many times the one before it, in which no more than three digits stand before the point.
fn in_unit(bytes: u64, times: f64, names: [&str; 5]) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= times - 0.5 && unit + 1 < names.len() {
        value /= times;
        unit += 1;
    }
    format!("{} {}", if unit == 0 { bytes.to_string() } else { digits(value) }, names[unit])
}

/// A size as a flag takes it, rounded up to whole MiB.
pub fn flag(bytes: u64) -> String {
    format!("{}MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("600MiB", 600 << 20),
            ("2GB", 2_000_000_000),
            ("1.5GiB", 3 << 29),
            ("64mib", 64 << 20),
            ("4096", 4096),
            ("10 kB", 10_000),
            ("7B", 7),
            (".5MiB", 1 << 19),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "MiB", "-1", "1.5", "1,5GiB", "12XB", "99999999999TiB", "1e3", "NaN", "6 0MiB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_printed_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (600 << 20, "600 MiB"),
            (3 << 29, "1.50 GiB"),
            (1_048_575, "1.00 MiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
        for (bytes, text) in [(999, "999 B"), (999_600, "1.00 MB"), (16_400_000_000, "16.4 GB"), (2 << 50, "2252 TB")] {
            assert_eq!(decimal(bytes), text);
        }
        assert_eq!(flag((64 << 20) + 1), "65MiB");
    }
}
