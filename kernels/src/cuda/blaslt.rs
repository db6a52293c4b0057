//! Matrix products through cuBLASLt, a thin wrapper with what training needs and the library's own defaults lack: f32
//! results of bf16 operands, adding to the result, and true f32.
//!
//! Everything here is column-major, as the library is: D [m,n] = op(A) op(B) (+ C), where C may be D. Row-major callers
//! give their operands in reverse: see [`super::linear`].
//!
//! Invariant: a shape has one algorithm. It is asked of the library once, and kept; it does not depend on where
//! operands lie except through their alignment (16 bytes, or less where a tensor begins so), nor on what else the
//! device does.
//! Sums over k are split between blocks only in the way that adds the parts in f32 in a fixed order.
#![allow(unsafe_code)]

use super::device::Queue;
use super::error::{Error, Version};
use super::library::{Library, Search};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as ComputeType, cublasLtMatmulDescAttributes_t as DescAttribute,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cudaDataType_t as DataType,
};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;

/// Major versions whose functions have the signatures below.
const MAJORS: [u32; 2] = [13, 12];
/// Algorithms that are asked for; the first that runs is kept.
const CANDIDATES: usize = 8;

/// A status by its number: 0 is success.
type Status = u32;
type Handle = sys::cublasLtHandle_t;
type Desc = sys::cublasLtMatmulDesc_t;
type Layout = sys::cublasLtMatrixLayout_t;
type Preference = sys::cublasLtMatmulPreference_t;
type Algorithm = sys::cublasLtMatmulAlgo_t;

/// The library's cublasLtMatmulHeuristicResult_t, whose state is a number here: a newer library may have more of them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Candidate {
    algorithm: Algorithm,
    workspace_bytes: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

#[derive(Clone, Copy)]
struct Functions {
    create: unsafe extern "C" fn(*mut Handle) -> Status,
    destroy: unsafe extern "C" fn(Handle) -> Status,
    status: unsafe extern "C" fn(Status) -> *const c_char,
    desc_create: unsafe extern "C" fn(*mut Desc, ComputeType, DataType) -> Status,
    desc_set: unsafe extern "C" fn(Desc, DescAttribute, *const c_void, usize) -> Status,
    desc_destroy: unsafe extern "C" fn(Desc) -> Status,
    layout_create: unsafe extern "C" fn(*mut Layout, DataType, u64, u64, i64) -> Status,
    layout_destroy: unsafe extern "C" fn(Layout) -> Status,
    preference_create: unsafe extern "C" fn(*mut Preference) -> Status,
    preference_set: unsafe extern "C" fn(Preference, PreferenceAttribute, *const c_void, usize) -> Status,
    preference_destroy: unsafe extern "C" fn(Preference) -> Status,
    heuristic: unsafe extern "C" fn(
        Handle,
        Desc,
        Layout,
        Layout,
        Layout,
        Layout,
        Preference,
        c_int,
        *mut Candidate,
        *mut c_int,
    ) -> Status,
    matmul: unsafe extern "C" fn(
        Handle,
        Desc,
        *const c_void,
        *const c_void,
        Layout,
        *const c_void,
        Layout,
        *const c_void,
        *const c_void,
        Layout,
        *mut c_void,
        Layout,
        *const Algorithm,
        *mut c_void,
        usize,
        sys::cudaStream_t,
    ) -> Status,
}

/// Arithmetic of a product. Sums are always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Arithmetic {
    /// bf16 operands.
    Bf16,
    /// f32 operands, of whose mantissa 10 bits count.
    Tf32,
    /// f32 operands.
    Fp32,
}

/// Everything that an algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub arithmetic: Arithmetic,
    /// Whether the result is bf16.
    pub narrow: bool,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Whether A is stored as [k,m], and B as [n,k].
    pub transposed: (bool, bool),
    /// Whether C is added.
    pub add: bool,
    /// Whether a vector [m] is added to every column.
    pub bias: bool,
}

/// Addresses of a product's operands.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub a: u64,
    pub b: u64,
    /// As D, which it may be.
    pub c: u64,
    pub d: u64,
    /// 0 without.
    pub bias: u64,
}

/// A shape's descriptions and algorithm.
struct Plan {
    desc: Desc,
    a: Layout,
    b: Layout,
    d: Layout,
    algorithm: Algorithm,
    workspace_bytes: usize,
}

/// The open library.
pub(super) struct BlasLt {
    functions: Functions,
    handle: Handle,
    version: Version,
    /// By shape and by the alignment of a, b, and c with d.
    plans: Mutex<HashMap<(Shape, [u32; 3]), Plan>>,
}

// SAFETY: a handle may be used by several threads; descriptions are used under the lock only.
unsafe impl Send for BlasLt {}
// SAFETY: as above.
unsafe impl Sync for BlasLt {}

impl BlasLt {
    /// Opens the library; the context of the device must be current on this thread.
    pub(super) fn open(search: &Search, driver: Version) -> Result<BlasLt, Error> {
        let majors: Vec<u32> = MAJORS.into_iter().filter(|major| *major <= driver.major).collect();
        let needed = format!("version 12.0 to {}.x", driver.major.min(MAJORS[0]));
        let (functions, version) = search.open("cuBLASLt", "libcublasLt", &majors, needed, |library| {
            let (functions, version) = functions(library)?;
            if majors.contains(&version.major) {
                Ok((functions, version))
            } else {
                Err(format!("it is version {version}"))
            }
        })?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` outlives the call.
        let created = unsafe { (functions.create)(&mut handle) };
        functions.check(created).map_err(|text| Error::Product { call: "starting cuBLASLt".into(), text })?;
        Ok(BlasLt { functions, handle, version, plans: Mutex::new(HashMap::new()) })
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Runs a product on a queue.
    ///
    /// The operands are of the shape's sizes: the caller, [`super::linear`], asserts it.
    pub(super) fn run(&self, queue: &Queue, shape: Shape, at: Operands) -> Result<(), Error> {
        queue.gpu().bind()?;
        let failed = |text| Error::Product { call: format!("the product {shape:?}"), text };
        let key = (shape, [alignment(at.a), alignment(at.b), alignment(at.c | at.d)]);
        let mut plans = self.plans.lock().expect("nothing panics with the lock");
        let plan = match plans.entry(key) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(self.plan(shape, key.1).map_err(failed)?),
        };
        if shape.bias {
            self.set(plan.desc, DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at.bias).map_err(failed)?;
        }
        let (one, beta) = (1f32, if shape.add { 1f32 } else { 0f32 });
        let pointer = |address: u64| address as *mut c_void;
        // SAFETY: handle and descriptions are alive; operands are device memory of the sizes that the layouts tell;
        // scalars are read before the call returns; the workspace belongs to the queue, whose work runs in order, and
        // has at least the bytes that the algorithm asked for.
        let status = unsafe {
            (self.functions.matmul)(
                self.handle,
                plan.desc,
                std::ptr::from_ref(&one).cast(),
                pointer(at.a),
                plan.a,
                pointer(at.b),
                plan.b,
                std::ptr::from_ref(&beta).cast(),
                pointer(at.c),
                plan.d,
                pointer(at.d),
                plan.d,
                &plan.algorithm,
                pointer(queue.workspace()),
                plan.workspace_bytes,
                queue.stream().cu_stream().cast(),
            )
        };
        self.functions.check(status).map_err(failed)
    }

    fn plan(&self, shape: Shape, alignments: [u32; 3]) -> Result<Plan, String> {
        let f = &self.functions;
        let compute = match shape.arithmetic {
            Arithmetic::Bf16 | Arithmetic::Fp32 => ComputeType::CUBLAS_COMPUTE_32F,
            Arithmetic::Tf32 => ComputeType::CUBLAS_COMPUTE_32F_FAST_TF32,
        };
        let kind = |narrow| if narrow { DataType::CUDA_R_16BF } else { DataType::CUDA_R_32F };
        let operand = kind(shape.arithmetic == Arithmetic::Bf16);
        let mut plan = Plan {
            desc: std::ptr::null_mut(),
            a: std::ptr::null_mut(),
            b: std::ptr::null_mut(),
            d: std::ptr::null_mut(),
            algorithm: Algorithm { data: [0; 8] },
            workspace_bytes: 0,
        };
        let (m, n, k) = (shape.m, shape.n, shape.k);
        let stored = |rows, columns, transposed| if transposed { (columns, rows) } else { (rows, columns) };
        let result = (|| {
            // SAFETY: `plan` outlives the calls, which write a description each.
            f.check(unsafe { (f.desc_create)(&mut plan.desc, compute, DataType::CUDA_R_32F) })?;
            self.set(plan.desc, DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, &i32::from(shape.transposed.0))?;
            self.set(plan.desc, DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, &i32::from(shape.transposed.1))?;
            if shape.bias {
                let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as u32;
                self.set(plan.desc, DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            }
            self.layout(&mut plan.a, operand, stored(m, k, shape.transposed.0))?;
            self.layout(&mut plan.b, operand, stored(k, n, shape.transposed.1))?;
            self.layout(&mut plan.d, kind(shape.narrow), (m, n))?;
            let mut preference = std::ptr::null_mut();
            // SAFETY: as above.
            f.check(unsafe { (f.preference_create)(&mut preference) })?;
            let chosen = self.choose(&plan, preference, alignments);
            // SAFETY: made above, used no more.
            unsafe { (f.preference_destroy)(preference) };
            chosen
        })();
        match result {
            Ok(chosen) => Ok(Plan { algorithm: chosen.algorithm, workspace_bytes: chosen.workspace_bytes, ..plan }),
            Err(why) => {
                self.destroy(&plan);
                Err(why)
            }
        }
    }

    /// The library's first choice.
    fn choose(&self, plan: &Plan, preference: Preference, alignments: [u32; 3]) -> Result<Candidate, String> {
        use PreferenceAttribute::*;
        let f = &self.functions;
        let set = |attribute, value: &dyn Value| {
            // SAFETY: the preference is alive; `value` is read before the call returns and is of the attribute's type.
            f.check(unsafe { (f.preference_set)(preference, attribute, value.place(), value.size()) })
        };
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &Queue::WORKSPACE_BYTES)?;
        // Parts of a sum are added by a second kernel from the workspace, in f32; never in place, where their order
        // varies.
        let reduction = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction)?;
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignments[0])?;
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignments[1])?;
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignments[2])?;
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignments[2])?;
        let none = Candidate {
            algorithm: Algorithm { data: [0; 8] },
            workspace_bytes: 0,
            state: Status::MAX,
            waves: 0.0,
            reserved: [0; 4],
        };
        let (mut candidates, mut found) = ([none; CANDIDATES], 0);
        // SAFETY: all descriptions are alive; `candidates` has as many entries as are asked for.
        f.check(unsafe {
            let (a, b, d) = (plan.a, plan.b, plan.d);
            let (list, count) = (candidates.as_mut_ptr(), CANDIDATES as c_int);
            (f.heuristic)(self.handle, plan.desc, a, b, d, d, preference, count, list, &mut found)
        })?;
        let found = candidates.iter().take(usize::try_from(found).unwrap_or(0));
        let mut good = found.filter(|c| c.state == 0 && c.workspace_bytes <= Queue::WORKSPACE_BYTES);
        good.next().copied().ok_or_else(|| "the library has no algorithm for it".to_owned())
    }

    fn layout(&self, to: &mut Layout, kind: DataType, (rows, columns): (usize, usize)) -> Result<(), String> {
        // SAFETY: `to` outlives the call, which writes a description.
        let status = unsafe { (self.functions.layout_create)(to, kind, rows as u64, columns as u64, rows as i64) };
        self.functions.check(status)
    }

    fn set(&self, desc: Desc, attribute: DescAttribute, value: &dyn Value) -> Result<(), String> {
        // SAFETY: the description is alive; `value` is read before the call returns and is of the attribute's type.
        self.functions.check(unsafe { (self.functions.desc_set)(desc, attribute, value.place(), value.size()) })
    }

    fn destroy(&self, plan: &Plan) {
        let f = &self.functions;
        // SAFETY: what is not null was made by `plan` and is used no more.
        unsafe {
            if !plan.desc.is_null() {
                (f.desc_destroy)(plan.desc);
            }
            for layout in [plan.a, plan.b, plan.d] {
                if !layout.is_null() {
                    (f.layout_destroy)(layout);
                }
            }
        }
    }
}

impl Drop for BlasLt {
    fn drop(&mut self) {
        let plans = std::mem::take(&mut *self.plans.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        plans.values().for_each(|plan| self.destroy(plan));
        // SAFETY: made by `open`, used no more.
        unsafe { (self.functions.destroy)(self.handle) };
    }
}

/// A value of an attribute: a number or an address.
trait Value {
    fn place(&self) -> *const c_void;
    fn size(&self) -> usize;
}

impl<T: Copy> Value for T {
    fn place(&self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }

    fn size(&self) -> usize {
        size_of::<T>()
    }
}

/// The greatest power of two up to 16 that divides an address: what the library may count on.
fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(4)
}

impl Functions {
    fn check(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library answers every status with a static text.
        let text = unsafe { CStr::from_ptr((self.status)(status)) };
        Err(text.to_string_lossy().into_owned())
    }
}

fn functions(library: Library) -> Result<(Functions, Version), String> {
    // SAFETY: each field of `Functions` has the signature of the function of that name in cuBLASLt 12 and 13, a status
    // being an enum of C, which is a number of 32 bits.
    let (functions, version) = unsafe {
        let functions = Functions {
            create: library.function("cublasLtCreate")?,
            destroy: library.function("cublasLtDestroy")?,
            status: library.function("cublasLtGetStatusString")?,
            desc_create: library.function("cublasLtMatmulDescCreate")?,
            desc_set: library.function("cublasLtMatmulDescSetAttribute")?,
            desc_destroy: library.function("cublasLtMatmulDescDestroy")?,
            layout_create: library.function("cublasLtMatrixLayoutCreate")?,
            layout_destroy: library.function("cublasLtMatrixLayoutDestroy")?,
            preference_create: library.function("cublasLtMatmulPreferenceCreate")?,
            preference_set: library.function("cublasLtMatmulPreferenceSetAttribute")?,
            preference_destroy: library.function("cublasLtMatmulPreferenceDestroy")?,
            heuristic: library.function("cublasLtMatmulAlgoGetHeuristic")?,
            matmul: library.function("cublasLtMatmul")?,
        };
        let version: unsafe extern "C" fn() -> usize = library.function("cublasLtGetVersion")?;
        (functions, version)
    };
    // SAFETY: it has no requirement.
    let number = unsafe { version() };
    let part = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Ok((functions, Version { major: part(number / 10_000), minor: part(number / 100 % 100) }))
}
