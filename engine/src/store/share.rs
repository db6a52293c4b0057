//! How much of a new store each volume gets: by measured bandwidth, as far as its free space goes.

use crate::config::{Config, RegionSpec};
use crate::error::Error;
use crate::format::Layout;
use crate::format::stripes::{Stripes, VOLUMES_MAX};
use crate::io::file::free_bytes;
use crate::probe;

/// Bytes that are written and read on each volume to measure it.
const PROBE_BYTES: u64 = 64 << 20;

/// Part of a volume's free space that shares count on; slots are whole, so a share may come out a little larger.
const USABLE: f64 = 0.97;

/// Decides the pattern by which a new store's pages are dealt to the configured volumes.
///
/// # Errors
/// `Config` for too many volumes or weights that do not match; `NoSpace` when they are too small together; `Io` when
/// one cannot be measured.
pub(super) fn choose(config: &Config, regions: &[RegionSpec]) -> Result<Stripes, Error> {
    let dirs = &config.volumes;
    if dirs.len() > VOLUMES_MAX {
        return Err(Error::Config { what: format!("volumes: expected at most {VOLUMES_MAX}, found {}", dirs.len()) });
    }
    if config.stripe_bytes == 0 || !config.stripe_bytes.is_multiple_of(4096) {
        let what = format!("stripe_bytes: expected a multiple of 4096, found {}", config.stripe_bytes);
        return Err(Error::Config { what });
    }
    let weights = if config.volume_weights.is_empty() {
        dirs.iter().map(|dir| probe::disk(dir, PROBE_BYTES).map(|rates| rates.mixed_bytes_per_s)).collect()
    } else {
        given(config)
    }?;
    let free = dirs.iter().map(|dir| free_bytes(dir)).collect::<Result<Vec<_>, _>>()?;
    let single = Layout::new(regions, &Stripes::single());
    // With all scratch, if that fits; a plan may need less of it.
    for need in [single.total_bytes(0), single.reserved_bytes(0)] {
        if let Some(shares) = shares(&weights, &free, need) {
            return Ok(Stripes::with_shares(config.stripe_bytes, &shares));
        }
    }
    Err(Error::NoSpace { path: dirs[0].clone(), need: single.reserved_bytes(0), free: free.iter().sum() })
}

fn given(config: &Config) -> Result<Vec<f64>, Error> {
    let weights = &config.volume_weights;
    if weights.len() != config.volumes.len() || !weights.iter().all(|w| w.is_finite() && *w > 0.0) {
        let what = format!(
            "volume_weights: expected {} positive numbers, found {weights:?}; none: volumes are measured",
            config.volumes.len()
        );
        return Err(Error::Config { what });
    }
    Ok(weights.clone())
}

/// The part of `need` bytes that each volume takes: as its weight says, but no more than it has room for; what one
/// cannot take the others share. None: they have too little room together.
fn shares(weights: &[f64], free: &[u64], need: u64) -> Option<Vec<f64>> {
    let room: Vec<f64> = free.iter().map(|f| *f as f64 * USABLE / need as f64).collect();
    let mut shares = vec![0.0; weights.len()];
    let mut open: Vec<usize> = (0..weights.len()).collect();
    let mut rest = 1.0;
    loop {
        let weight: f64 = open.iter().map(|v| weights[*v]).sum();
        let full: Vec<usize> = open.iter().copied().filter(|v| rest * weights[*v] / weight > room[*v]).collect();
        if full.is_empty() {
            open.iter().for_each(|v| shares[*v] = rest * weights[*v] / weight);
            break;
        }
        for v in full {
            shares[v] = room[v];
            rest -= room[v];
            open.retain(|other| *other != v);
        }
        if open.is_empty() {
            break;
        }
    }
    let fits = shares.iter().sum::<f64>() > 1.0 - 1e-9 && shares.iter().all(|s| *s > 0.0);
    fits.then_some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_decide_until_a_volume_is_full() {
        assert_eq!(shares(&[1.0, 3.0], &[1000, 1000], 100), Some(vec![0.25, 0.75]));
        let limited = shares(&[1.0, 1.0, 2.0], &[1000, 1000, 10], 100).expect("fits");
        assert!((limited[2] - 0.097).abs() < 1e-9 && (limited[0] - limited[1]).abs() < 1e-9);
        assert!((limited.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn volumes_too_small_together_are_refused() {
        assert_eq!(shares(&[1.0, 1.0], &[50, 40], 100), None);
        assert!(shares(&[1.0, 1.0], &[60, 60], 100).is_some());
    }
}
