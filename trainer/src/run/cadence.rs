//! How often to commit when the user leaves it open: as often as costs at most 1% of the steps' time, and keeps the
//! drives writing for at most 1% of it. The second is about wear: a commit that hides behind the computation costs no
//! time, but one of 1.5 GiB at every step of a second would write 130 TB a day.

/// Share of the time that commits may take, of the steps and of the drives.
const SHARE: f64 = 0.01;
/// Beyond this a crash would cost more than commits do.
const EVERY_MAX: u64 = 1_000;

/// Steps between commits, from the predicted seconds of a step without one, those that a commit adds, and those in
/// which the drives write what it adds to the step's own bytes. 1 where every step may commit.
pub fn checkpoint_every(step_seconds: f64, commit_seconds: f64, writing_seconds: f64) -> u64 {
    let every = (commit_seconds.max(writing_seconds) / (SHARE * step_seconds.max(1e-3))).ceil();
    (every.min(EVERY_MAX as f64) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_that_cost_nothing_come_every_step() {
        assert_eq!(checkpoint_every(2.0, 0.0, 0.0), 1);
        assert_eq!(checkpoint_every(2.0, 0.02, 0.01), 1);
    }

    #[test]
    fn others_come_as_often_as_costs_a_hundredth() {
        // 0.12 s are 1% of 6 steps of 2 s.
        assert_eq!(checkpoint_every(2.0, 0.12, 0.1), 6);
        assert_eq!(checkpoint_every(0.0, 1e6, 0.0), EVERY_MAX);
        assert_eq!(checkpoint_every(1e9, 1e-3, 0.0), 1);
        // Hidden behind the computation, but not from the drives.
        assert_eq!(checkpoint_every(2.0, 0.0, 0.12), 6);
    }
}
