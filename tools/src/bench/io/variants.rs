//! The engine with one setting changed at a time, and another library beside it.

use super::disk::{Disk, failed, usual};
use super::options::{REPEATS, USUAL_BLOCK, USUAL_DEPTH};
use super::report::Variant;
use super::summary::Summary;
use crate::failure::Failure;
use mt_engine::bench::{Polling, Setup};
use mt_engine::{Backend, Error};
use std::time::Duration;

/// EOPNOTSUPP: what a transfer ends with that asks for a way of waiting which the drive's queues are not made for.
const NOT_SUPPORTED: i32 = 95;

impl Disk<'_> {
    /// Reads with one setting of the engine changed at a time, and with another library.
    pub(super) fn variants(&self, time: Duration) -> Result<Vec<Variant>, Failure> {
        let memory_bytes = u64::from(USUAL_BLOCK * USUAL_DEPTH);
        let usual_setup =
            Setup { backend: self.through.backend(), depth_max: USUAL_DEPTH, memory_bytes, ..Setup::default() };
        let setups = [
            ("as the engine is", usual_setup),
            ("memory in pages of 4 KiB", Setup { huge_pages: false, ..usual_setup }),
            ("memory not registered", Setup { is_registered: false, ..usual_setup }),
            ("drive polled (IOPOLL)", Setup { polling: Polling::Drive, ..usual_setup }),
            ("submissions polled (SQPOLL)", Setup { polling: Polling::Submissions, ..usual_setup }),
            ("pool of threads", Setup { backend: Backend::Pool, ..usual_setup }),
        ];
        let names = setups.iter().map(|(name, _)| *name).chain(["tokio-uring, pages of 4 KiB"]);
        let mut found: Vec<(&str, Result<Vec<f64>, String>)> = names.map(|name| (name, Ok(Vec::new()))).collect();
        for _ in 0..REPEATS {
            for ((_, rates), setup) in found.iter_mut().zip(setups.iter().map(|(_, setup)| Some(setup)).chain([None])) {
                let Ok(known) = rates else { continue };
                let rate = match setup {
                    Some(setup) => self.variant(setup, time),
                    None if self.places.len() > 1 => Err(Failure::new("for one path alone", 4)),
                    None => self.tokio(&usual(100), time, &mut |_| ()).map(|moved| moved.rate()),
                };
                match rate {
                    Ok(rate) => known.push(rate),
                    Err(failure) if failure.code == 130 => return Err(failure),
                    Err(failure) => *rates = Err(failure.text),
                }
            }
        }
        let variant = |(name, rates): (&str, Result<Vec<f64>, String>)| Variant {
            name: name.to_owned(),
            bytes_per_s: rates.clone().ok().map(Summary::of),
            refused: rates.err(),
        };
        Ok(found.into_iter().map(variant).collect())
    }

    fn variant(&self, setup: &Setup, time: Duration) -> Result<f64, Failure> {
        let mut load = self.ground.load(setup).map_err(failed)?;
        let is_over = |_, elapsed| elapsed >= time || self.watch.is_stopped();
        let moved = load.run(&usual(100), is_over, |_| ()).map_err(|error| match &error {
            Error::Io { source, .. } if source.raw_os_error() == Some(NOT_SUPPORTED) => {
                Failure::new("the drive or its driver does not support it", 4)
            }
            _ => failed(error),
        })?;
        self.watch.go_on()?;
        Ok(moved.rate())
    }
}
