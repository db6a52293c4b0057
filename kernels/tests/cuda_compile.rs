//! Every CUDA source compiles for every architecture, and what the assembler reports of each kernel fits that
//! architecture's limits at the kernel's launch configuration. Needs NVRTC but no GPU: skipped, loudly, where there is
//! none, unless MT_CUDA_PATH promises one.

use mt_kernels::cuda::{Arch, Compiler, Error, KERNELS, Kernel, Search, Source, parameter_sizes, sources};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Architectures, with the most shared memory that a block may have, in bytes.
const ARCHS: [(Arch, u32); 6] = [
    (Arch { major: 8, minor: 0 }, 163 * 1024),
    (Arch { major: 8, minor: 6 }, 99 * 1024),
    (Arch { major: 8, minor: 9 }, 99 * 1024),
    (Arch { major: 9, minor: 0 }, 227 * 1024),
    (Arch { major: 10, minor: 0 }, 227 * 1024),
    (Arch { major: 12, minor: 0 }, 99 * 1024),
];
/// Registers of a block at most, on every architecture above; a warp gets them in units of 256.
const REGISTERS: u32 = 65_536;
const REGISTER_UNIT: u32 = 256;

/// What the assembler reports of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    registers: u32,
    shared_bytes: u32,
    spill_bytes: u32,
    stack_bytes: u32,
}

/// The number before `unit` in a line such as "Used 30 registers, used 1 barriers, 400 bytes smem".
fn before(line: &str, unit: &str) -> Option<u32> {
    let part = line.split(',').find(|part| part.trim_end().ends_with(unit))?;
    part.split_whitespace().rev().find_map(|word| word.parse().ok())
}

/// The report as NVRTC's log has it.
fn usages(log: &str) -> BTreeMap<String, Usage> {
    let mut all = BTreeMap::new();
    let mut name = None;
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Function properties for ") {
            name = Some(rest.trim().to_owned());
        } else if let Some(name) = &name {
            let usage: &mut Usage = all.entry(name.clone()).or_default();
            if line.contains("bytes stack frame") {
                let (stores, loads) = (before(line, "bytes spill stores"), before(line, "bytes spill loads"));
                usage.spill_bytes = stores.unwrap_or(u32::MAX).max(loads.unwrap_or(u32::MAX));
                usage.stack_bytes = before(line, "bytes stack frame").unwrap_or(u32::MAX);
            } else if line.contains(" registers") {
                usage.registers = before(line, "registers").unwrap_or(u32::MAX);
                usage.shared_bytes = before(line, "bytes smem").unwrap_or(0);
            }
        }
    }
    all
}

/// Bytes that a kernel may spill: two registers. The attention kernels take every register that there is, and versions
/// of the compiler differ by so much (13.0: none; 13.5: 4 to 8 bytes on some architectures), which no timing shows.
const SPILL_MAX: u32 = 8;

/// What of a kernel does not fit.
fn misfits(kernel: &Kernel, usage: Usage, shared_limit: u32) -> Vec<String> {
    let warps = kernel.threads.div_ceil(32);
    let registers = warps * (usage.registers * 32).next_multiple_of(REGISTER_UNIT);
    let shared = usage.shared_bytes + kernel.shared_bytes;
    let checks = [
        (usage.registers > 0, format!("no report of registers: {usage:?}")),
        (registers <= REGISTERS, format!("{} threads of {} registers", kernel.threads, usage.registers)),
        (shared <= shared_limit, format!("{shared} bytes of shared memory, {shared_limit} allowed")),
        (usage.spill_bytes <= SPILL_MAX, format!("spills {} bytes, {SPILL_MAX} allowed", usage.spill_bytes)),
    ];
    checks.into_iter().filter(|(good, _)| !good).map(|(_, what)| what).collect()
}

/// Compiles one source for one architecture; complaints.
fn check(compiler: &Compiler, source: &Source, arch: Arch, shared_limit: u32) -> Vec<String> {
    let place = |what: String| format!("{source} for {arch}: {what}");
    let compiled = match compiler.compile(source, arch) {
        Ok(compiled) => compiled,
        Err(error) => return vec![error.to_string()],
    };
    let mut found = usages(&compiled.log);
    let mut out = Vec::new();
    for kernel in KERNELS.iter().flat_map(|k| k.iter()).filter(|k| std::ptr::eq(k.source, source)) {
        match found.remove(kernel.name) {
            Some(usage) => {
                let each = misfits(kernel, usage, shared_limit).into_iter();
                out.extend(each.map(|what| place(format!("{}: {what}", kernel.name))));
            }
            None => out.push(place(format!("{}: not in the assembler's report", kernel.name))),
        }
        match parameter_sizes(&compiled.cubin, kernel) {
            Ok(sizes) if !sizes.is_empty() => {}
            Ok(_) => out.push(place(format!("{}: without parameters", kernel.name))),
            Err(error) => out.push(place(error.to_string())),
        }
    }
    out.extend(found.keys().map(|name| place(format!("{name}: in no list of kernels"))));
    out
}

#[test]
fn sources_compile_for_every_architecture_and_fit_it() {
    let compiler = match Compiler::open(&Search::from_env(), None, None) {
        Ok(compiler) => compiler,
        Err(error @ Error::NoLibrary { .. }) if std::env::var_os("MT_CUDA_PATH").is_none() => {
            eprintln!("skipped: compiling the CUDA sources: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let work: Vec<_> = sources().into_iter().flat_map(|source| ARCHS.map(|arch| (source, arch))).collect();
    let next = Mutex::new(work.iter());
    let complaints = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let taken = next.lock().unwrap().next();
                    let Some((source, (arch, shared_limit))) = taken else { break };
                    let found = check(&compiler, source, *arch, *shared_limit);
                    complaints.lock().unwrap().extend(found);
                }
            });
        }
    });
    let mut complaints = complaints.into_inner().unwrap();
    complaints.sort();
    assert!(complaints.is_empty(), "NVRTC {}:\n{}", compiler.version(), complaints.join("\n"));
    eprintln!("NVRTC {}: {} cubins", compiler.version(), work.len());
}

#[test]
fn the_report_of_the_assembler_is_understood() {
    let log = "ptxas info    : Compiling entry function 'k' for 'sm_80'\n\
               ptxas info    : Function properties for k\n\
               ptxas         .     16 bytes stack frame, 24 bytes spill stores, 8 bytes spill loads\n\
               ptxas info    : Used 130 registers, used 1 barriers, 400 bytes smem, 384 bytes cmem[0]\n\
               ptxas info    : Function properties for l\n\
               ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
               ptxas info    : Used 31 registers, used 0 barriers, 448 bytes cmem[0]\n";
    let k = Usage { registers: 130, shared_bytes: 400, spill_bytes: 24, stack_bytes: 16 };
    let l = Usage { registers: 31, ..Usage::default() };
    let found = usages(log);
    assert_eq!(found, BTreeMap::from([("k".to_owned(), k), ("l".to_owned(), l)]));
    let kernel = KERNELS.iter().flat_map(|k| k.iter()).find(|k| k.threads == 512).unwrap();
    // 512 threads of 130 registers, and spills; then too much shared memory too.
    assert_eq!(misfits(kernel, k, 1 << 17).len(), 2);
    assert_eq!(misfits(kernel, k, 399).len(), 3);
    assert!(misfits(kernel, l, 0).is_empty());
}
