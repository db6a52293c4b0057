//! Tickets beside sweeps with devices.
