//! What runs teach a profile. A run measures rates by doing its work; each moves the profile's a part of the way, so
//! that one noisy run cannot ruin it and a machine that has changed is known after a few.
//!
//! A run sees the processor as a whole, not each kernel and shape. Where it is far off, they may have been probed while
//! others used the machine (products of one model were probed at a third of their rates, beside a build), and moving
//! all of them alike would make those wrong that were right: they are measured anew.

use super::{MachineProfile, Origin};

/// Share of the way, in the logarithm, that a run moves a rate: after five runs that agree, three quarters of it.
const SHARE: f64 = 0.25;
/// The most that a single run's rate counts for, either way.
const TIMES_MAX: f64 = 4.0;
/// Times by which the processor's rates may be off, either way, without being in doubt.
const DOUBT: f64 = 1.25;

/// Rates that a run measured, as multiples of those it was planned with; None: it saw too little to tell.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    /// Kernels other than the update's.
    pub compute: Option<f64>,
    /// The update.
    pub update: Option<f64>,
    /// Reading alone.
    pub read: Option<f64>,
    /// Writing alone.
    pub write: Option<f64>,
    /// Both at once.
    pub mixed: Option<f64>,
}

impl Measured {
    /// Whether there is anything to learn.
    pub fn is_empty(&self) -> bool {
        *self == Measured::default()
    }
}

impl MachineProfile {
    /// Moves the rates towards what a run measured on this machine, with all of the profile's drives in use, on `date`.
    pub fn learn(&mut self, measured: &Measured, date: String) {
        let step = |times: Option<f64>| {
            let sound = times.filter(|times| times.is_finite() && *times > 0.0);
            sound.map_or(1.0, |times| times.clamp(1.0 / TIMES_MAX, TIMES_MAX).powf(SHARE))
        };
        for disk in &mut self.disks {
            disk.read_bytes_per_s *= step(measured.read);
            disk.write_bytes_per_s *= step(measured.write);
            disk.mixed_bytes_per_s *= step(measured.mixed);
        }
        self.compute.scale(step(measured.compute), step(measured.update));
        self.doubtful =
            [measured.compute, measured.update].into_iter().flatten().any(|times| times.max(1.0 / times) > DOUBT);
        (self.origin, self.date, self.runs) = (Origin::Measured, date, self.runs + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn one_noisy_run_moves_a_rate_little_and_many_that_agree_bring_it_there() {
        let old = MachineProfile::assumed(2);
        let mut profile = old.clone();
        let noisy = Measured { read: Some(100.0), compute: Some(0.0), ..Measured::default() };
        profile.learn(&noisy, "2026-11-30".to_owned());
        let times = profile.disks[0].read_bytes_per_s / old.disks[0].read_bytes_per_s;
        assert!((times - std::f64::consts::SQRT_2).abs() < 1e-9, "{times}");
        assert_eq!(
            (&profile.compute, profile.disks[0].write_bytes_per_s),
            (&old.compute, old.disks[0].write_bytes_per_s)
        );

        // The machine is half as fast as the profile says; each run is measured against the profile as it then is.
        let mut profile = old.clone();
        for _ in 0..12 {
            let rate = |profile: &MachineProfile| profile.compute.products[0].operations_per_s;
            let measured = Measured { compute: Some(0.5 * rate(&old) / rate(&profile)), ..Measured::default() };
            profile.learn(&measured, "2026-11-30".to_owned());
        }
        let times = profile.compute.products[0].operations_per_s / old.compute.products[0].operations_per_s;
        assert!((0.5..0.52).contains(&times), "{times}");
        assert_eq!(profile.compute.adamw_elements_per_s, old.compute.adamw_elements_per_s);
        let text = profile.describe();
        assert!(text.contains("measured") && text.contains("12 runs") && text.contains("2026-11-30"), "{text}");
        assert_eq!(MachineProfile::parse(&profile.to_json(), Path::new("p.json")).expect("it reads"), profile);
    }

    #[test]
    fn the_processors_rates_are_in_doubt_while_the_last_run_was_far_off() {
        let mut profile = MachineProfile::assumed(2);
        let mut learn = |compute, update| {
            profile.learn(&Measured { compute, update, ..Measured::default() }, "2026-11-30".to_owned());
            profile.doubtful
        };
        assert!(!learn(Some(1.2), None) && learn(Some(3.0), None) && !learn(None, Some(0.9)) && learn(None, Some(0.5)));
        assert!(!profile.to_json().contains("\"doubtful\": false") && profile.to_json().contains("\"doubtful\": true"));
    }
}
