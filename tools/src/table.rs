//! Small pieces of text output: labelled lines, numbers with separators, durations, rates.

use mt_trainer::digits::digits;
use mt_trainer::run::size::human;

/// A line with a label in a column of its own.
pub fn line(label: &str, text: &str) -> String {
    format!("{label:<13} {text}")
}

/// A whole number with separators between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of steps.
pub fn steps(number: u64) -> String {
    format!("{} step{}", count(number), if number == 1 { "" } else { "s" })
}

/// A number of parameters as people say it.
pub fn parameters(number: u64) -> String {
    match number {
        0..1_000_000 => count(number),
        1_000_000..1_000_000_000 => format!("{:.1} M", number as f64 / 1e6),
        _ => format!("{:.2} B", number as f64 / 1e9),
    }
}

/// A time with two or three digits that say something.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 3_599.5 => {
            let minutes = (s / 60.0).round();
            format!("{:.0} h {:.0} min", (minutes / 60.0).floor(), minutes % 60.0)
        }
        s if s >= 100.0 => {
            let s = s.round();
            format!("{:.0} min {:.0} s", (s / 60.0).floor(), s % 60.0)
        }
        s if s >= 10.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 0.099_95 => format!("{s:.3} s"),
        s if s >= 0.000_999_5 => format!("{} ms", digits(1e3 * s)),
        s if s > 0.0 => format!("{} us", digits(1e6 * s)),
        _ => "0 s".to_owned(),
    }
}

/// Tokens a second; in no time, none.
pub fn tokens_per_s(tokens: f64, seconds: f64) -> String {
    format!("{} tokens/s", digits(if seconds > 0.0 { tokens / seconds } else { 0.0 }))
}

/// Bytes a second.
pub fn rate(bytes: u64, seconds: f64) -> String {
    if seconds > 0.0 { format!("{}/s", human((bytes as f64 / seconds) as u64)) } else { "no time".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!((count(0), count(999), count(1_000)), ("0".into(), "999".into(), "1,000".into()));
        assert_eq!(count(12_687_744), "12,687,744");
        assert_eq!(parameters(12_687_744), "12.7 M");
        assert_eq!(
            (seconds(0.5), seconds(61.0), seconds(125.0)),
            ("0.500 s".into(), "61 s".into(), "2 min 5 s".into())
        );
        let small = [0.38904, 0.0999, 0.005_21, 0.000_999_9, 1.25e-5, 0.0].map(seconds);
        assert_eq!(small, ["0.389 s", "99.9 ms", "5.21 ms", "1.00 ms", "12.5 us", "0 s"]);
        let rates = [(1.0, 5.0), (512.0, 0.389), (4_096.0, 201.0), (1.0, 0.0)];
        let rates = rates.map(|(tokens, seconds)| tokens_per_s(tokens, seconds));
        assert_eq!(rates, ["0.200 tokens/s", "1316 tokens/s", "20.4 tokens/s", "0 tokens/s"]);
        assert_eq!((seconds(479.6), seconds(3_599.7)), ("8 min 0 s".into(), "1 h 0 min".into()));
    }
}
