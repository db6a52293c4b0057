//! Numbers for people: three digits that say something, whatever the size.

/// A number with three digits, from 100 on with all before the point: `0.0213`, `2.13`, `21.3`, `2130`.
pub fn digits(number: f64) -> String {
    // What it is once it is rounded: 9.996 is 10.0.
    let rounded = format!("{number:.2e}");
    let exponent = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok()).unwrap_or(0);
    let decimals = if number == 0.0 { 0 } else { (2 - exponent).clamp(0, 12) as usize };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_told_of_any_size() {
        for (number, text) in [
            (0.0, "0"),
            (0.000_213_4, "0.000213"),
            (0.0213, "0.0213"),
            (0.9996, "1.00"),
            (2.134, "2.13"),
            (9.996, "10.0"),
            (21.34, "21.3"),
            (99.96, "100"),
            (213.4, "213"),
            (12_345.6, "12346"),
            (-2.134, "-2.13"),
        ] {
            assert_eq!(digits(number), text);
        }
    }
}
