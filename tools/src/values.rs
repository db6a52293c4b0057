//! Readers of single values. Each takes the text and gives the value or, as its error, what was expected.

use mt_trainer::run::size;
use mt_trainer::settings::{Auto, Durability, LrSchedule, Recompute, STEPS_MAX};
use std::path::PathBuf;
use std::str::FromStr;

const THREADS_MAX: u64 = 1_024;

/// A whole number from `min` to `max`.
pub fn count(min: u64, max: u64) -> impl Fn(&str) -> Result<u64, String> {
    move |text| match text.replace('_', "").parse::<u64>() {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        _ => Err(format!("a whole number from {min} to {max}")),
    }
}

/// A finite number from `min` to `max`.
pub fn number(min: f64, max: f64) -> impl Fn(&str) -> Result<f64, String> {
    move |text| match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= min && value <= max => Ok(value),
        _ if max == f64::MAX => Err(format!("a finite number of at least {min}")),
        _ => Err(format!("a number from {min} to {max}")),
    }
}

/// A finite number that is above 0 in the 32 bits that it is used in.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (value as f32) > 0.0 && (value as f32).is_finite() => Ok(value),
        _ => Err(format!("a number from {:e} to {:e}", f32::from_bits(1), f32::MAX)),
    }
}

/// What a drive may write in its life, in bytes, from TB: from a GB, less than any drive's, to a thousand PB.
pub fn life(text: &str) -> Result<f64, String> {
    let terabytes = text.parse::<f64>().ok().filter(|terabytes| (1e-3..=1e6).contains(terabytes));
    terabytes
        .map(|terabytes| terabytes * 1e12)
        .ok_or_else(|| "TB written, from 0.001 to 1000000, such as 600".to_owned())
}

/// "auto" or what `inner` reads.
pub fn auto<T>(inner: impl Fn(&str) -> Result<T, String>) -> impl Fn(&str) -> Result<Auto<T>, String> {
    move |text| match text {
        "auto" => Ok(Auto::Auto),
        _ => inner(text).map(Auto::Value).map_err(|expected| format!("{expected}, or auto")),
    }
}

/// A size in bytes, at least 1.
pub fn bytes(text: &str) -> Result<u64, String> {
    match size::parse(text) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(format!("a size such as {}", nearest_size(text).unwrap_or("600MiB or 2GB".to_owned()))),
    }
}

/// What "64G" or "64Gi" may mean.
fn nearest_size(text: &str) -> Option<String> {
    let number = text.trim().trim_end_matches(['i', 'I']);
    let unit = number.chars().next_back().filter(|unit| "kmgtKMGT".contains(*unit))?;
    let meant = format!("{}{}iB", number.trim_end_matches(unit).trim(), unit.to_ascii_uppercase());
    size::parse(&meant).is_ok().then_some(meant)
}

/// A number of threads.
pub fn threads(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(value) if (1..=THREADS_MAX).contains(&value) => Ok(value),
        _ => Err(format!("a whole number from 1 to {THREADS_MAX}")),
    }
}

/// Steps that are traced unless others are named: the third has an update before it, and what the first left behind is
/// done.
pub const TRACED: (u64, u64) = (3, 3);

/// A step or a range of steps, counted from 1.
pub fn steps(text: &str) -> Result<(u64, u64), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if 1 <= first && first <= last && last <= STEPS_MAX => Ok((first, last)),
        _ => Err("a step such as 3 or a range such as 3-5, from 1 on".to_owned()),
    }
}

/// A value that has a name of its own.
pub fn named<T: FromStr<Err = &'static str>>(text: &str) -> Result<T, String> {
    text.parse().map_err(str::to_owned)
}

/// The threads that the process may run on.
pub fn all_threads() -> u64 {
    std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64).min(THREADS_MAX)
}

/// Elements of a page.
pub fn page(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(value) if value.is_power_of_two() && (2_048..=1 << 20).contains(&value) => Ok(value),
        _ => Err("a power of two from 2048 to 1048576".to_owned()),
    }
}

/// Both decay rates, below 1.
pub fn betas(text: &str) -> Result<(f64, f64), String> {
    let read = |part: &str| part.trim().parse::<f64>().ok().filter(|beta| (0.0..1.0).contains(beta));
    let pair = text.split_once(',').and_then(|(first, second)| Some((read(first)?, read(second)?)));
    pair.ok_or_else(|| "two numbers from 0 to below 1, such as 0.9,0.95".to_owned())
}

/// A path as it was given, for this process alone.
pub fn here(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("a path".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// A path, made absolute: the run may be resumed from another folder.
pub fn path(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|_| "a path".to_owned())
}

/// A shape of the learning rate.
pub fn lr_schedule(text: &str) -> Result<LrSchedule, String> {
    match text {
        "constant" => Ok(LrSchedule::Constant),
        "linear" => Ok(LrSchedule::Linear),
        "cosine" => Ok(LrSchedule::Cosine),
        _ => Err("constant, linear or cosine".to_owned()),
    }
}

/// What is computed again in backward.
pub fn recompute(text: &str) -> Result<Recompute, String> {
    match text {
        "all" => Ok(Recompute::All),
        "none" => Ok(Recompute::None),
        "auto" => Ok(Recompute::Auto),
        _ => Err("all, none or auto".to_owned()),
    }
}

/// What survives a crash.
pub fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "full" => Ok(Durability::Full),
        "none" => Ok(Durability::None),
        _ => Err("full or none".to_owned()),
    }
}
