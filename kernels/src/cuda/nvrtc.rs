//! The run-time compiler: a source and a target in, a cubin and the assembler's report out. Cubins are kept in a folder
//! ([`super::cache`]).
#![allow(unsafe_code)]

use super::cache::Cache;
use super::error::{Error, Version};
use super::library::{Library, Search};
use super::sources::{Arch, HEADERS, Source};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;

/// Major versions of NVRTC that are known to take these sources.
const MAJORS: [u32; 2] = [13, 12];

type Program = *mut c_void;
type Status = c_int;

/// The functions that are used, as NVRTC documents them. A status of 0 is success.
#[derive(Clone, Copy)]
struct Functions {
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    arch_count: unsafe extern "C" fn(*mut c_int) -> Status,
    archs: unsafe extern "C" fn(*mut c_int) -> Status,
}

/// An open NVRTC and the folder of what it compiled.
pub struct Compiler {
    functions: Functions,
    version: Version,
    cache: Cache,
}

/// A source compiled for one target.
pub struct Compiled {
    /// The cubin, an ELF file.
    pub cubin: Vec<u8>,
    /// What the compiler and the assembler say; empty if the cubin was kept from before.
    pub log: String,
}

impl Compiler {
    /// Opens the first NVRTC found that `driver` (the version of CUDA that the driver supports) can run the code of.
    /// `cache` is the folder for cubins; without one, every source is compiled again.
    ///
    /// # Errors
    /// [`Error::NoLibrary`].
    pub fn open(search: &Search, driver: Option<Version>, cache: Option<PathBuf>) -> Result<Compiler, Error> {
        let most = driver.map_or(MAJORS[0], |driver| driver.major);
        let majors: Vec<u32> = MAJORS.into_iter().filter(|major| *major <= most).collect();
        let needed = format!("version 12.0 to {most}.x");
        let (functions, version) = search.open("NVRTC", "libnvrtc", &majors, needed, |library| {
            let (functions, version) = functions(library)?;
            let fits = version.major >= 12 && version.major <= most;
            if fits { Ok((functions, version)) } else { Err(format!("it is version {version}")) }
        })?;
        Ok(Compiler { functions, version, cache: Cache::new(cache) })
    }

    /// Version of NVRTC.
    pub fn version(&self) -> Version {
        self.version
    }

    /// What to compile for so that a device of `arch` can run it: the greatest minor version up to its own of its major
    /// version that this compiler knows.
    ///
    /// # Errors
    /// [`Error::Compile`] if it knows none.
    pub fn target(&self, arch: Arch) -> Result<Arch, Error> {
        let known = self.functions.archs().unwrap_or_default();
        let fits = |a: &Arch| a.major == arch.major && a.minor <= arch.minor;
        known.iter().copied().filter(fits).max().ok_or_else(|| Error::Compile {
            version: self.version,
            source_name: "any source".into(),
            arch: arch.to_string(),
            log: "this version does not know the device; a newer one does".into(),
        })
    }

    /// The cubin of a source, from the folder or compiled now.
    ///
    /// # Errors
    /// [`Error::Compile`].
    pub fn cubin(&self, source: &Source, arch: Arch) -> Result<Vec<u8>, Error> {
        let key = self.cache.key(self.version, source, arch);
        if let Some(cubin) = self.cache.get(&key) {
            return Ok(cubin);
        }
        let compiled = self.compile(source, arch)?;
        self.cache.put(&key, &compiled.cubin);
        Ok(compiled.cubin)
    }

    /// Compiles a source, whatever the folder holds.
    ///
    /// # Errors
    /// [`Error::Compile`].
    pub fn compile(&self, source: &Source, arch: Arch) -> Result<Compiled, Error> {
        let failed = |log: String| Error::Compile {
            version: self.version,
            source_name: source.to_string(),
            arch: arch.to_string(),
            log,
        };
        let options: Vec<CString> = source.options(arch).into_iter().map(text).collect();
        let headers: Vec<CString> = HEADERS.iter().map(|(_, content)| text(*content)).collect();
        let names: Vec<CString> = HEADERS.iter().map(|(name, _)| text(*name)).collect();
        let (content, name) = (text(source.text), text(source.file));
        let program = Handle::create(self.functions, &content, &name, &headers, &names).map_err(failed)?;
        let result = program.compile(&options);
        let log = program.log().map_err(failed)?;
        if let Err(why) = result {
            return Err(failed(format!("{why}\n{log}")));
        }
        Ok(Compiled { cubin: program.cubin().map_err(failed)?, log })
    }
}

/// A text without zero bytes, as all of ours are.
fn text(from: impl Into<Vec<u8>>) -> CString {
    CString::new(from).expect("no source, name or option has a zero byte")
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|t| t.as_ptr()).collect()
}

fn functions(library: Library) -> Result<(Functions, Version), String> {
    // SAFETY: each field of `Functions` has the signature of the function of that name in NVRTC 12 and 13.
    let (functions, version) = unsafe {
        let functions = Functions {
            error_string: library.function("nvrtcGetErrorString")?,
            create: library.function("nvrtcCreateProgram")?,
            destroy: library.function("nvrtcDestroyProgram")?,
            compile: library.function("nvrtcCompileProgram")?,
            log_size: library.function("nvrtcGetProgramLogSize")?,
            log: library.function("nvrtcGetProgramLog")?,
            cubin_size: library.function("nvrtcGetCUBINSize")?,
            cubin: library.function("nvrtcGetCUBIN")?,
            arch_count: library.function("nvrtcGetNumSupportedArchs")?,
            archs: library.function("nvrtcGetSupportedArchs")?,
        };
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status = library.function("nvrtcVersion")?;
        (functions, version)
    };
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers lead to integers that outlive the call.
    functions.check(unsafe { version(&mut major, &mut minor) })?;
    Ok((functions, Version { major: major.unsigned_abs(), minor: minor.unsigned_abs() }))
}

impl Functions {
    fn check(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC answers every status with a static text.
        let text = unsafe { std::ffi::CStr::from_ptr((self.error_string)(status)) };
        Err(text.to_string_lossy().into_owned())
    }

    /// Targets that the compiler knows.
    fn archs(&self) -> Result<Vec<Arch>, String> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        self.check(unsafe { (self.arch_count)(&mut count) })?;
        let mut numbers = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: NVRTC writes as many numbers as it said.
        self.check(unsafe { (self.archs)(numbers.as_mut_ptr()) })?;
        let arch = |number: &c_int| Arch { major: number.unsigned_abs() / 10, minor: number.unsigned_abs() % 10 };
        Ok(numbers.iter().map(arch).collect())
    }
}

/// A program of NVRTC, destroyed when dropped.
struct Handle {
    functions: Functions,
    program: Program,
}

impl Handle {
    fn create(
        functions: Functions,
        content: &CString,
        name: &CString,
        headers: &[CString],
        names: &[CString],
    ) -> Result<Handle, String> {
        let mut program = std::ptr::null_mut();
        let (contents, names) = (pointers(headers), pointers(names));
        let count = c_int::try_from(names.len()).expect("a few headers");
        // SAFETY: all texts end with a zero and live during the call, which copies them; both lists have `count`
        // entries.
        let status = unsafe {
            let (contents, names) = (contents.as_ptr(), names.as_ptr());
            (functions.create)(&mut program, content.as_ptr(), name.as_ptr(), count, contents, names)
        };
        functions.check(status)?;
        Ok(Handle { functions, program })
    }

    fn compile(&self, options: &[CString]) -> Result<(), String> {
        let options = pointers(options);
        let count = c_int::try_from(options.len()).expect("a few options");
        // SAFETY: the program is alive; the list has `count` texts that end with a zero.
        self.functions.check(unsafe { (self.functions.compile)(self.program, count, options.as_ptr()) })
    }

    fn log(&self) -> Result<String, String> {
        let bytes = self.bytes(self.functions.log_size, self.functions.log)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches(['\0', '\n']).to_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>, String> {
        self.bytes(self.functions.cubin_size, self.functions.cubin)
    }

    fn bytes(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> Status,
        get: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ) -> Result<Vec<u8>, String> {
        let mut len = 0;
        // SAFETY: the program is alive; `len` outlives the call.
        self.functions.check(unsafe { size(self.program, &mut len) })?;
        let mut bytes = vec![0u8; len];
        // SAFETY: NVRTC writes the `len` bytes that it asked for.
        self.functions.check(unsafe { get(self.program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the program is alive and nobody else has it.
        unsafe { (self.functions.destroy)(&mut self.program) };
    }
}
