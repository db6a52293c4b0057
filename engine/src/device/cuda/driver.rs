//! What is needed of CUDA's driver, each with its end: context, pinned arena, allocation, stream, event. Every call's
//! result is checked; where the driver is missing or too old the error says so, and nothing of it is called.
#![allow(unsafe_code)]

use crate::arena::Arena;
use crate::error::Error;
use crate::id::DeviceId;
use cudarc::driver::{DriverError, sys};
use std::ptr;
use std::sync::Arc;

/// The least version of CUDA that the driver must support, as the driver counts: 12.0.
const DRIVER_MIN: i32 = 12_000;

/// A call's result as ours.
pub(super) fn check(device: DeviceId, call: &'static str, result: sys::CUresult) -> Result<(), Error> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let error = DriverError(result);
    let text = |found: Result<&std::ffi::CStr, DriverError>| {
        found.map_or_else(|_| "unknown".to_owned(), |text| text.to_string_lossy().into_owned())
    };
    let text = format!("{}: {}", text(error.error_name()), text(error.error_string()));
    Err(Error::Device { device, call, code: result as u32, text })
}

fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// The primary context of a device.
pub(super) struct Context {
    pub(super) id: DeviceId,
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

// SAFETY: a context is a handle that any thread may make current; the driver does its own locking.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Finds the driver and the device.
    pub(super) fn open(id: DeviceId) -> Result<Context, Error> {
        let missing = |looked_for: &str, found: String, needed: String| {
            Err(Error::NoDevice { device: id, looked_for: looked_for.into(), found, needed })
        };
        let needed = format!("a driver that supports CUDA {} or newer", version(DRIVER_MIN));
        // SAFETY: it only opens and closes the library.
        if !unsafe { sys::is_culib_present() } {
            return missing(
                "CUDA's driver library (libcuda.so.1)",
                "none that the system's loader finds".into(),
                needed,
            );
        }
        let mut number = 0;
        // SAFETY: the library is there; `number` outlives the call.
        check(id, "cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut number) })?;
        if number < DRIVER_MIN {
            return missing("CUDA's driver", format!("one that supports CUDA {}", version(number)), needed);
        }
        let wanted = format!("device {}", id.0);
        let mut count = 0;
        // SAFETY: it may be called at any time.
        let result = unsafe { sys::cuInit(0) };
        if result != sys::CUresult::CUDA_ERROR_NO_DEVICE {
            check(id, "cuInit", result)?;
            // SAFETY: the driver is initialized; `count` outlives the call.
            check(id, "cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        }
        if i32::from(id.0) >= count {
            let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
            let hidden = visible.map_or(String::new(), |set| format!(" (CUDA_VISIBLE_DEVICES is \"{set}\")"));
            return missing("a GPU", format!("{count} of them{hidden}"), wanted);
        }
        let (mut device, mut raw) = (0, ptr::null_mut());
        // SAFETY: the driver is initialized and has the device; the places outlive the calls.
        check(id, "cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, i32::from(id.0)) })?;
        // SAFETY: as above.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) };
        check(id, "cuDevicePrimaryCtxRetain", result)?;
        let context = Context { id, device, raw };
        context.bind()?;
        Ok(context)
    }

    /// Makes it current on this thread.
    pub(super) fn bind(&self) -> Result<(), Error> {
        // SAFETY: the context is retained as long as `self` lives.
        check(self.id, "cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once by `open`. An error at the end has nobody to tell it to.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// The arena, registered with the driver: copies go at the link's full rate and beside everything else.
pub(in crate::device) struct Pinned {
    context: Arc<Context>,
    arena: Arc<Arena>,
}

impl Pinned {
    pub(super) fn new(context: &Arc<Context>, arena: &Arc<Arena>) -> Result<Pinned, Error> {
        context.bind()?;
        let bytes = usize::try_from(arena.bytes()).expect("the arena is mapped");
        // SAFETY: the range is the arena's own, which is held until it is unregistered.
        let result = unsafe { sys::cuMemHostRegister_v2(arena.base().cast(), bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) };
        check(context.id, "cuMemHostRegister", result)?;
        Ok(Pinned { context: Arc::clone(context), arena: Arc::clone(arena) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // All copies end before: also those of a failed submission.
        // SAFETY: the context is current then; the range was registered by `new`. Errors have nobody to tell them to.
        let _ = self.context.bind().map(|()| unsafe {
            let _ = sys::cuCtxSynchronize();
            sys::cuMemHostUnregister(self.arena.base().cast())
        });
    }
}

/// The allocation.
pub(super) struct Vram {
    context: Arc<Context>,
    pub(super) base: u64,
    bytes: u64,
}

impl Vram {
    pub(super) fn new(context: &Arc<Context>, bytes: u64) -> Result<Vram, Error> {
        context.bind()?;
        let (mut base, length) = (0, usize::try_from(bytes).expect("64 bits"));
        // SAFETY: the context is current; `base` outlives the call.
        let result = unsafe { sys::cuMemAlloc_v2(&mut base, length) };
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let (mut free, mut all) = (0, 0);
            // SAFETY: as above. Where this fails too, the numbers are 0.
            let _ = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut all) };
            let text = format!("CUDA_ERROR_OUT_OF_MEMORY: {bytes} bytes asked for, {free} of {all} free");
            return Err(Error::Device { device: context.id, call: "cuMemAlloc", code: result as u32, text });
        }
        check(context.id, "cuMemAlloc", result)?;
        Ok(Vram { context: Arc::clone(context), base, bytes })
    }

    /// Panics where a copy would leave the allocation.
    pub(super) fn check(&self, offset: u64, bytes: u32) {
        let end = offset.checked_add(u64::from(bytes)).expect("an offset does not overflow");
        assert!(end <= self.bytes, "bytes {offset}..{end} lie outside an allocation of {} bytes", self.bytes);
    }
}

impl Drop for Vram {
    fn drop(&mut self) {
        // SAFETY: it was allocated by `new`, in the context that is current then; the call waits for work that uses it.
        let _ = self.context.bind().map(|()| unsafe { sys::cuMemFree_v2(self.base) });
    }
}

/// A stream of our own, which waits for no other.
pub(super) struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
}

// SAFETY: a stream is a handle that any thread may use while its context is current.
unsafe impl Send for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Stream, Error> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; `raw` outlives the call.
        check(context.id, "cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        Ok(Stream { context: Arc::clone(context), raw })
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`; what is on it still runs to its end.
        let _ = self.context.bind().map(|()| unsafe { sys::cuStreamDestroy_v2(self.raw) });
    }
}

/// An event, for waiting without keeping a core busy.
pub(super) struct Event {
    /// None: another `Event` of the same handle destroys it.
    context: Option<Arc<Context>>,
    raw: sys::CUevent,
}

// SAFETY: an event is a handle that any thread may use while its context is current.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(super) fn new(context: &Arc<Context>) -> Result<Event, Error> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        let flags =
            sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32 | sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current; `raw` outlives the call.
        check(context.id, "cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        Ok(Event { context: Some(Arc::clone(context)), raw })
    }

    /// The same event. The one that `new` made must live as long.
    pub(super) fn again(&self) -> Event {
        Event { context: None, raw: self.raw }
    }

    /// Records it on a stream. The context is current.
    pub(super) fn record(&self, device: DeviceId, stream: sys::CUstream) -> Result<(), Error> {
        // SAFETY: the event lives; the stream is of the same context, ours or the one that the user named as such.
        check(device, "cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream) })
    }

    /// Makes a stream wait, from where it stands, for what was recorded last. The context is current.
    pub(super) fn hold_up(&self, device: DeviceId, stream: sys::CUstream) -> Result<(), Error> {
        // SAFETY: as in `record`; an event that was never recorded holds nobody up.
        check(device, "cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream, self.raw, 0) })
    }

    /// Sleeps until it has happened. The context is current.
    pub(super) fn wait(&self, device: DeviceId) -> Result<(), Error> {
        // SAFETY: the event lives: its operation, or the fences it is one of, hold it.
        check(device, "cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(context) = &self.context {
            // SAFETY: it was made by `new`; an event that has not happened is destroyed when it has.
            let _ = context.bind().map(|()| unsafe { sys::cuEventDestroy_v2(self.raw) });
        }
    }
}
