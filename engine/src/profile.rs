//! Measured rates of a machine, as the planner needs them.

use crate::id::DeviceId;

/// Bytes per second of the links, the latency of the disk, and what moving bytes takes from the cores.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Reading alone, all volumes together.
    pub disk_read_bytes_per_s: f64,
    /// Writing alone, all volumes together.
    pub disk_write_bytes_per_s: f64,
    /// Both at once, sum of both directions.
    pub disk_mixed_bytes_per_s: f64,
    /// Copying within RAM, bytes copied.
    pub host_copy_bytes_per_s: f64,
    /// Seconds of one 4 KiB read at depth 1.
    pub disk_latency_s: f64,
    /// Seconds that a commit takes for its records and syncs once all its pages are written.
    pub disk_sync_s: f64,
    /// Core-seconds that a byte over the disk link takes from the computation: checksum, system calls, interrupts,
    /// memory.
    pub transfer_cpu_s_per_byte: f64,
    /// Cores of the machine.
    pub cores: u32,
    /// Threads that the user's computation runs on. Transfers take the cores that these leave free first.
    pub compute_threads: u32,
    /// The link of each GPU; empty where there is none.
    pub links: Vec<LinkRates>,
}

/// The link between RAM and the VRAM of one GPU. It moves bytes both ways at once, each way somewhat slower then.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkRates {
    /// The GPU.
    pub device: DeviceId,
    /// RAM to VRAM alone.
    pub upload_bytes_per_s: f64,
    /// VRAM to RAM alone.
    pub download_bytes_per_s: f64,
    /// RAM to VRAM while the other way is in use too.
    pub upload_both_bytes_per_s: f64,
    /// VRAM to RAM while the other way is in use too.
    pub download_both_bytes_per_s: f64,
    /// Share of these rates that is left while the host computes, whose threads take of RAM's bandwidth.
    pub busy_share: f64,
    /// Seconds for which a transfer keeps its way beside the time of its bytes.
    pub latency_s: f64,
}

impl Default for Profile {
    /// A slow NVMe drive, two cores, both computing, and no GPU; used until a machine is measured, and named as assumed
    /// wherever it shows.
    fn default() -> Profile {
        Profile {
            disk_read_bytes_per_s: 1.5e9,
            disk_write_bytes_per_s: 0.8e9,
            disk_mixed_bytes_per_s: 1.2e9,
            host_copy_bytes_per_s: 8e9,
            disk_latency_s: 150e-6,
            disk_sync_s: 0.02,
            transfer_cpu_s_per_byte: 0.3e-9,
            cores: 2,
            compute_threads: 2,
            links: Vec::new(),
        }
    }
}

impl LinkRates {
    /// A PCIe 4 x16 link, to plan with before it is measured.
    pub fn assumed(device: DeviceId) -> LinkRates {
        LinkRates {
            device,
            upload_bytes_per_s: 24e9,
            download_bytes_per_s: 24e9,
            upload_both_bytes_per_s: 20e9,
            download_both_bytes_per_s: 20e9,
            busy_share: 1.0,
            latency_s: 5e-6,
        }
    }
}
