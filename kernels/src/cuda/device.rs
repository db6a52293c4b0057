//! A device with its compiled kernels, and queues of work on it.
//!
//! Invariants: a kernel is launched only with as many arguments as it has parameters and of their sizes, which are read
//! from its cubin; a module stays loaded as long as the [`Gpu`] lives.
#![allow(unsafe_code)]

use super::blaslt::BlasLt;
use super::buffer::Buffer;
use super::cubin;
use super::error::{Error, Version};
use super::library::{Search, driver_present};
use super::nvrtc::Compiler;
use super::sources::{Arch, KERNELS, Kernel, Source};
use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The least version of CUDA that the driver must support: all functions that are called are in it.
const DRIVER: Version = Version { major: 12, minor: 0 };
/// The least compute capability: bf16 matrix instructions.
const CAPABILITY: Version = Version { major: 8, minor: 0 };
/// Dynamic shared memory that a kernel may use without asking.
const SHARED_UNASKED: u32 = 48 * 1024;

/// A device. Clones are the same device.
#[derive(Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
}

struct Inner {
    context: Arc<CudaContext>,
    name: String,
    arch: Arch,
    compiler: Compiler,
    /// By the address of the kernel's description, which is static.
    functions: Mutex<HashMap<usize, Arc<Function>>>,
    blaslt: BlasLt,
}

/// A kernel that is loaded.
struct Function {
    raw: sys::CUfunction,
    parameter_sizes: Vec<usize>,
}

// SAFETY: a CUfunction is a handle that any thread may launch while its module is loaded and its context current; both
// are kept by the Gpu that hands functions out.
unsafe impl Send for Function {}
// SAFETY: as above; nothing of it changes.
unsafe impl Sync for Function {}

/// A result of the driver as ours.
pub(super) fn driver<T>(call: &'static str, result: Result<T, DriverError>) -> Result<T, Error> {
    result.map_err(|error| Error::Driver { call, text: error.to_string() })
}

impl Gpu {
    /// Opens device `index` with its primary context, NVRTC and cuBLASLt. Cubins are kept in `cache` if given.
    ///
    /// # Errors
    /// What is missing or too old, with what was found and what is needed.
    pub fn open(index: usize, search: &Search, cache: Option<PathBuf>) -> Result<Gpu, Error> {
        let devices = Gpu::count()?;
        let found = driver_version()?;
        if index >= devices {
            return Err(Error::NoDevice { asked: index, found: devices });
        }
        let context = driver("opening the device", CudaContext::new(index))?;
        let name = driver("the device's name", context.name())?;
        let (major, minor) = driver("the compute capability", context.compute_capability())?;
        let capability = Version { major: major.unsigned_abs(), minor: minor.unsigned_abs() };
        if capability < CAPABILITY {
            return Err(Error::DeviceTooOld { name, found: capability, needed: CAPABILITY });
        }
        let compiler = Compiler::open(search, Some(found), cache)?;
        let arch = compiler.target(Arch { major: capability.major, minor: capability.minor })?;
        let blaslt = BlasLt::open(search, found)?;
        let functions = Mutex::new(HashMap::new());
        Ok(Gpu { inner: Arc::new(Inner { context, name, arch, compiler, functions, blaslt }) })
    }

    /// Number of devices that the driver shows to this process. Opens none.
    ///
    /// # Errors
    /// There is no driver, or one that is too old or does not start.
    pub fn count() -> Result<usize, Error> {
        driver_version()?;
        match result::init().and_then(|()| result::device::get_count()) {
            Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => Ok(0),
            other => Ok(usize::try_from(driver("starting the driver", other)?).unwrap_or(0)),
        }
    }

    /// Name of device `index`, which is not opened.
    ///
    /// # Errors
    /// As [`count`](Gpu::count); there is no such device.
    pub fn name_of(index: usize) -> Result<String, Error> {
        let found = Gpu::count()?;
        if index >= found {
            return Err(Error::NoDevice { asked: index, found });
        }
        let device = driver("looking for the device", result::device::get(index as i32))?;
        driver("the device's name", result::device::get_name(device))
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the kernels are compiled for.
    pub fn arch(&self) -> Arch {
        self.inner.arch
    }

    /// The device's primary context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.inner.context
    }

    /// Versions of the driver (the CUDA that it supports), NVRTC and cuBLASLt.
    ///
    /// # Errors
    /// A call of the driver fails.
    pub fn versions(&self) -> Result<[(&'static str, Version); 3], Error> {
        let blaslt = self.inner.blaslt.version();
        Ok([("driver", driver_version()?), ("NVRTC", self.inner.compiler.version()), ("cuBLASLt", blaslt)])
    }

    pub(super) fn blaslt(&self) -> &BlasLt {
        &self.inner.blaslt
    }

    /// Makes the context current on this thread.
    pub(super) fn bind(&self) -> Result<(), Error> {
        driver("making the context current", self.inner.context.bind_to_thread())
    }

    /// Compiles and loads sources now, each on a thread of its own, so that no launch has to.
    ///
    /// # Errors
    /// A source does not compile or load.
    pub fn prepare(&self, sources: &[&'static Source]) -> Result<(), Error> {
        std::thread::scope(|scope| {
            let load = |source: &&'static Source| {
                let source = *source;
                scope.spawn(move || self.load(source))
            };
            let threads: Vec<_> = sources.iter().map(load).collect();
            let results = threads.into_iter().map(|t| t.join().expect("loading a source does not panic"));
            results.collect::<Result<Vec<()>, Error>>().map(|_| ())
        })
    }

    fn load(&self, source: &'static Source) -> Result<(), Error> {
        let image = self.inner.compiler.cubin(source, self.inner.arch)?;
        self.bind()?;
        let kernels = KERNELS.iter().flat_map(|k| k.iter()).filter(|k| std::ptr::eq(k.source, source));
        // SAFETY: the image is a whole cubin, an ELF file that tells its own size; the driver copies it.
        let module = driver("loading a cubin", unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) })?;
        let mut loaded = Vec::new();
        for kernel in kernels {
            let parameter_sizes = cubin::parameter_sizes(&image, kernel)?;
            let name = CString::new(kernel.name).expect("names have no zero byte");
            // SAFETY: the module was just loaded and is never unloaded.
            let raw = driver("finding a kernel", unsafe { result::module::get_function(module, name) })?;
            if kernel.shared_bytes > SHARED_UNASKED {
                let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                let bytes = i32::try_from(kernel.shared_bytes).expect("less than 2 GiB");
                // SAFETY: the function belongs to the module above.
                let set = unsafe { result::function::set_function_attribute(raw, most, bytes) };
                driver("asking for shared memory", set)?;
            }
            loaded.push((address(kernel), Arc::new(Function { raw, parameter_sizes })));
        }
        self.inner.functions.lock().expect("nothing panics with the lock").extend(loaded);
        Ok(())
    }

    fn function(&self, kernel: &'static Kernel) -> Result<Arc<Function>, Error> {
        let find = || self.inner.functions.lock().expect("nothing panics with the lock").get(&address(kernel)).cloned();
        if let Some(function) = find() {
            return Ok(function);
        }
        self.load(kernel.source)?;
        Ok(find().expect("a source's kernels are in KERNELS"))
    }

    /// Waits until all work on the device has ended.
    ///
    /// # Errors
    /// Work failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        driver("waiting for the device", self.inner.context.synchronize())
    }

    /// Bytes of device memory: (free, all).
    ///
    /// # Errors
    /// A call of the driver fails.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        self.bind()?;
        driver("the device's memory", result::mem_get_info())
    }

    /// An attribute of the device, such as the number of its multiprocessors.
    ///
    /// # Errors
    /// A call of the driver fails.
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32, Error> {
        driver("an attribute of the device", self.inner.context.attribute(attribute))
    }
}

fn address(kernel: &'static Kernel) -> usize {
    std::ptr::from_ref(kernel).addr()
}

/// The version of CUDA that the driver supports, at least [`DRIVER`].
fn driver_version() -> Result<Version, Error> {
    if !driver_present() {
        return Err(Error::NoDriver { needed: DRIVER });
    }
    let mut number = 0;
    // SAFETY: the driver's library is present; `number` outlives the call.
    driver("the driver's version", unsafe { sys::cuDriverGetVersion(&mut number) }.result())?;
    let number = number.unsigned_abs();
    let found = Version { major: number / 1000, minor: number % 1000 / 10 };
    if found < DRIVER { Err(Error::DriverTooOld { found, needed: DRIVER }) } else { Ok(found) }
}

/// A type of arguments, which are passed by value; addresses of views as `u64`.
///
/// Only such types have it, no reference: were it implemented for all types that can be copied, a `&dyn Arg` would be
/// an argument too, and iterating over arguments would measure and pass the references, not what they lead to.
pub(super) trait Arg {
    fn size(&self) -> usize;
    fn place(&self) -> *mut c_void;
}

/// Makes types into types of arguments.
macro_rules! args {
    ($($t:ty),+) => {
        $(impl $crate::cuda::device::Arg for $t {
            fn size(&self) -> usize {
                size_of::<$t>()
            }

            fn place(&self) -> *mut std::ffi::c_void {
                std::ptr::from_ref(self).cast_mut().cast()
            }
        })+
    };
}
pub(super) use args;

args!(u32, u64, i32, f32);

fn sizes(args: &[&dyn Arg]) -> Vec<usize> {
    args.iter().map(|arg| arg.size()).collect()
}

fn places(args: &[&dyn Arg]) -> Vec<*mut c_void> {
    args.iter().map(|arg| arg.place()).collect()
}

/// A stream of a device with the workspace of its matrix products. Work on it runs in order.
pub struct Queue {
    gpu: Gpu,
    stream: Arc<CudaStream>,
    workspace: Buffer<u8>,
}

impl Queue {
    /// On a new stream.
    ///
    /// # Errors
    /// A call of the driver fails; memory is short.
    pub fn new(gpu: &Gpu) -> Result<Queue, Error> {
        let stream = driver("making a stream", gpu.inner.context.new_stream())?;
        Queue::on(gpu, stream)
    }

    /// On a stream of the device's primary context.
    ///
    /// # Errors
    /// Memory is short.
    pub fn on(gpu: &Gpu, stream: Arc<CudaStream>) -> Result<Queue, Error> {
        let workspace = Buffer::new(gpu, Queue::WORKSPACE_BYTES)?;
        Ok(Queue { gpu: gpu.clone(), stream, workspace })
    }

    /// Bytes of device memory that a queue takes for matrix products.
    pub const WORKSPACE_BYTES: usize = 32 << 20;

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The stream.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Address of the workspace.
    pub(super) fn workspace(&self) -> u64 {
        self.workspace.view().address()
    }

    /// Waits until all work on the queue has ended.
    ///
    /// # Errors
    /// Work failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        driver("waiting for a stream", self.stream.synchronize())
    }

    /// Launches a kernel on `grid` blocks; nothing if there are none.
    ///
    /// Soundness rests on the caller's arguments: addresses come from views, and the shapes beside them are asserted to
    /// be those of the views, within which the kernel stays.
    pub(super) fn launch(
        &self,
        kernel: &'static Kernel,
        grid: (u32, u32, u32),
        shared_bytes: u32,
        args: &[&dyn Arg],
    ) -> Result<(), Error> {
        if grid.0 == 0 || grid.1 == 0 || grid.2 == 0 {
            return Ok(());
        }
        let function = self.gpu.function(kernel)?;
        assert_eq!(sizes(args), function.parameter_sizes, "sizes of {}'s arguments and parameters", kernel.name);
        assert!(shared_bytes <= kernel.shared_bytes, "{}: {shared_bytes} bytes of shared memory", kernel.name);
        self.gpu.bind()?;
        let mut places = places(args);
        let block = (kernel.threads, 1, 1);
        // SAFETY: the function is loaded in the current context, to which the stream belongs; there are as many
        // arguments as parameters and of their sizes, and the driver copies them before it returns; the memory that the
        // kernel works on is within views, whose makers keep it valid until the work has ended.
        let launched = unsafe {
            let stream = self.stream.cu_stream();
            result::launch_kernel(function.raw, grid, block, shared_bytes, stream, &mut places)
        };
        driver(kernel.name, launched)
    }
}

/// Blocks of `threads` threads for `n` items of work.
///
/// # Panics
/// If there are more than a grid can have.
pub(super) fn blocks(n: usize, per_block: usize) -> u32 {
    let blocks = n.div_ceil(per_block);
    assert!(blocks <= i32::MAX as usize, "{n} items are too many for one launch");
    blocks as u32
}

#[cfg(test)]
mod tests;
