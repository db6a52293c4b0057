//! Schedules of sweeps.
