//! How often to commit when the user leaves it open: as often as costs at most 1% of the steps' time.

/// A commit of streamed pages costs nothing but waiting for the volumes; this is assumed for it.
const SYNC_SECONDS: f64 = 0.02;
/// Share of the time that commits may take.
const SHARE: f64 = 0.01;
/// Beyond this a crash would cost more than commits do.
const EVERY_MAX: u64 = 1_000;

/// Steps between commits, from the predicted seconds of a step, the bytes that a commit writes beside the step's own
/// (12 for each element placed in RAM) and the volumes' write rate. 1 where every step may commit.
pub fn checkpoint_every(step_seconds: f64, commit_bytes: u64, write_bytes_per_s: f64) -> u64 {
    let writing = commit_bytes as f64 / write_bytes_per_s.max(1.0);
    // The sync of a commit is waited for by the next one at the earliest; only writing takes the link from the steps.
    let cost = if commit_bytes == 0 { 0.0 } else { SYNC_SECONDS + writing };
    let every = (cost / (SHARE * step_seconds.max(1e-3))).ceil();
    (every.min(EVERY_MAX as f64) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_pages_commit_every_step() {
        assert_eq!(checkpoint_every(2.0, 0, 0.8e9), 1);
    }

    #[test]
    fn placed_pages_commit_as_often_as_costs_a_hundredth() {
        // 80 MB take 0.1 s and 0.02 s for the sync: 0.12 s is 1% of 6 steps of 2 s.
        assert_eq!(checkpoint_every(2.0, 80_000_000, 0.8e9), 6);
        assert_eq!(checkpoint_every(0.0, 1 << 40, 0.8e9), EVERY_MAX);
        assert_eq!(checkpoint_every(1e9, 1, 0.8e9), 1);
    }
}
