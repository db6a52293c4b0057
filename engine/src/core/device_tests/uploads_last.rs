//! A device in RAM that tells of its uploads late: fences that come behind them on a stream are told first.

use crate::device::memory::MemoryDevice;
use crate::device::{Device, DeviceCompletion, DeviceOp};
use crate::error::Error;
use crate::io::OpId;

/// The device, with uploads that are over and not told.
pub(super) struct UploadsLast {
    device: MemoryDevice,
    held: Vec<DeviceCompletion>,
    polls: u64,
}

impl UploadsLast {
    pub(super) fn new(device: MemoryDevice) -> UploadsLast {
        UploadsLast { device, held: Vec::new(), polls: 0 }
    }
}

impl Device for UploadsLast {
    fn submit(&mut self, id: OpId, op: DeviceOp) -> Result<(), DeviceOp> {
        self.device.submit(id, op)
    }

    fn poll(&mut self, out: &mut Vec<DeviceCompletion>) -> Result<(), Error> {
        let mut all = Vec::new();
        self.device.poll(&mut all)?;
        let is_upload = |it: &DeviceCompletion| matches!(it.op, DeviceOp::Upload { .. } | DeviceOp::Clear { .. });
        self.held.extend(all.extract_if(.., |it| is_upload(it)));
        out.append(&mut all);
        self.polls += 1;
        if self.polls.is_multiple_of(60) {
            out.append(&mut self.held);
        }
        Ok(())
    }
}
