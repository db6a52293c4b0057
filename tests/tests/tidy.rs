//! The structure of the repository as a test: arrows between packages, words that a package may not say, files that may
//! hold `unsafe`, headers, ASCII, line length, the top level. Every rule is a function of paths and texts, and has a
//! test that it fires.

use mt_tests::rust_text::{Kind, Piece, pieces, words};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What each package may use of ours.
const ARROWS: [(&str, &[&str]); 6] = [
    ("engine", &[]),
    ("kernels", &[]),
    ("trainer", &["mt-engine", "mt-kernels"]),
    ("tools", &["mt-engine", "mt-trainer"]),
    ("benches", &["mt-engine", "mt-kernels", "mt-trainer", "mt-tools", "mt-tests"]),
    ("tests", &["mt-engine", "mt-kernels", "mt-trainer", "mt-tools"]),
];

/// Whole identifiers that a package's code and the text that it prints do not contain, lower case; plurals too.
const WORDS: [(&str, &[&str]); 3] = [
    ("engine/src/", &["tensor", "layer", "adam", "adamw", "token", "model"]),
    ("kernels/src/", &["page", "tier", "io"]),
    ("trainer/src/", &["io_uring", "uring", "o_direct"]),
];

/// Files that may hold `unsafe`.
const UNSAFE: [&str; 17] = [
    "engine/src/arena.rs",
    "engine/src/device/cuda.rs",
    "engine/src/device/cuda/driver.rs",
    "engine/src/io/uring.rs",
    "engine/src/lease.rs",
    "engine/tests/allocations.rs",
    "engine/tests/device.rs",
    "kernels/src/cuda/blaslt.rs",
    "kernels/src/cuda/buffer.rs",
    "kernels/src/cuda/device.rs",
    "kernels/src/cuda/library.rs",
    "kernels/src/cuda/link.rs",
    "kernels/src/cuda/nvrtc.rs",
    "kernels/src/product.rs",
    "kernels/src/simd.rs",
    "tools/src/allocator.rs",
    "trainer/src/step/on_gpu.rs",
];

/// Everything at the top level of the repository, except build and run folders.
const TOP: [&str; 16] = [
    ".ci",
    ".clippy.toml",
    ".gitignore",
    ".rustfmt.toml",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "benches",
    "design.md",
    "engine",
    "kernels",
    "rust-toolchain.toml",
    "tests",
    "tools",
    "trainer",
];

/// A file by its path from the repository's root, with forward slashes.
struct File {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_owned()
}

/// The files that git tracks; in a copy without git, all but build and run folders.
fn paths() -> Vec<String> {
    let git = std::process::Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    if let Ok(out) = git
        && out.status.success()
        && !out.stdout.is_empty()
    {
        let names = String::from_utf8(out.stdout).expect("paths are UTF-8");
        let present = |p: &&str| !p.is_empty() && root().join(p).exists();
        return names.split('\0').filter(present).map(str::to_owned).collect();
    }
    let mut out = Vec::new();
    walk(&root(), "", &mut out);
    out
}

fn walk(dir: &Path, prefix: &str, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).expect("the folder can be read") {
        let entry = entry.expect("the entry can be read");
        let path = format!("{prefix}{}", entry.file_name().to_str().expect("names are UTF-8"));
        if entry.file_type().expect("the type is known").is_dir() {
            if !matches!(path.as_str(), "target" | "runs" | ".git") {
                walk(&entry.path(), &format!("{path}/"), out);
            }
        } else {
            out.push(path);
        }
    }
}

/// Tracked files that are text.
fn files() -> Vec<File> {
    let read = |path: String| Some(File { text: std::fs::read_to_string(root().join(&path)).ok()?, path });
    paths().into_iter().filter_map(read).collect()
}

fn check(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

// Arrows.

/// Names of our packages that a manifest depends on, in any of its dependency tables.
fn uses(manifest: &str) -> BTreeSet<String> {
    fn collect(table: &toml::Table, out: &mut BTreeSet<String>) {
        for (key, value) in table {
            let Some(inner) = value.as_table() else { continue };
            if key.ends_with("dependencies") {
                for (name, entry) in inner {
                    let real = entry.get("package").and_then(toml::Value::as_str).unwrap_or(name);
                    out.extend(real.starts_with("mt-").then(|| real.to_owned()));
                }
            } else {
                collect(inner, out);
            }
        }
    }
    let mut out = BTreeSet::new();
    collect(&manifest.parse().expect("the manifest is TOML"), &mut out);
    out
}

fn broken_arrows(package: &str, manifest: &str) -> Vec<String> {
    let (_, may) = ARROWS.iter().find(|(p, _)| *p == package).expect("every package has arrows");
    let extra = uses(manifest).into_iter().filter(|u| !may.contains(&u.as_str()));
    extra.map(|u| format!("{package}/Cargo.toml: {package} may not use {u}")).collect()
}

#[test]
fn packages_use_only_what_the_arrows_allow() {
    for (package, _) in ARROWS {
        let manifest = std::fs::read_to_string(root().join(package).join("Cargo.toml")).expect("the package exists");
        check(broken_arrows(package, &manifest));
    }
}

#[test]
fn rule_arrows_fires() {
    let manifest = "[package]\nname = \"x\"\n[dev-dependencies]\n\
                    mt-trainer.workspace = true\n[target.'cfg(unix)'.dependencies]\n\
                    k = { package = \"mt-kernels\", path = \"../kernels\" }\n";
    assert_eq!(broken_arrows("engine", manifest).len(), 2);
    assert_eq!(broken_arrows("trainer", manifest).len(), 1);
    assert_eq!(broken_arrows("tools", manifest).len(), 1);
    assert!(broken_arrows("tests", manifest).is_empty());
}

// Words.

/// Identifiers of code and words of string literals that the package may not say. Comments are free: there a word may
/// have its everyday sense.
fn broken_words(file: &File) -> Vec<String> {
    let Some((_, banned)) = WORDS.iter().find(|(prefix, _)| file.path.starts_with(prefix)) else { return Vec::new() };
    let says = |piece: &Piece| {
        let lower = piece.text.to_lowercase();
        let mut found = words(&lower).filter(|w| banned.iter().any(|b| *w == *b || w.strip_suffix('s') == Some(b)));
        found.next().map(|w| format!("{}:{}: may not say `{w}`", file.path, piece.line))
    };
    pieces(&file.text).iter().filter(|p| p.kind != Kind::Comment).filter_map(says).collect()
}

#[test]
fn packages_do_not_say_the_words_of_others() {
    check(files().iter().filter(|f| f.path.ends_with(".rs")).flat_map(broken_words).collect());
}

#[test]
fn rule_words_fires() {
    let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
    assert_eq!(broken_words(&file("engine/src/a.rs", "// a model\nlet Tensor = 1;\nf(\"5 tokens\");")).len(), 2);
    assert!(broken_words(&file("engine/src/a.rs", "let tensor_like = remodel;")).is_empty());
    assert_eq!(broken_words(&file("kernels/src/a.rs", "use std::io;")).len(), 1);
    assert_eq!(broken_words(&file("trainer/src/a.rs", "libc::O_DIRECT")).len(), 1);
    assert!(broken_words(&file("trainer/src/a.rs", "use tokio_uring::fs;")).is_empty());
    assert!(broken_words(&file("tools/src/a.rs", "let tensor = 1;")).is_empty());
}

// Unsafe.

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Whether a SAFETY comment stands on the line or directly above the statement that holds it.
fn documented(lines: &[&str], index: usize) -> bool {
    let safety = |line: &str| line.contains("SAFETY:");
    if safety(lines[index]) {
        return true;
    }
    for line in lines[..index].iter().rev() {
        let code = line.trim();
        if is_comment(line) {
            if safety(line) {
                return true;
            }
        } else if code.is_empty() || code.ends_with([';', '}']) || (code.ends_with('{') && !code.contains("unsafe")) {
            return false;
        }
    }
    false
}

fn broken_unsafe(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut out = Vec::new();
    for piece in pieces(&file.text).iter().filter(|p| p.kind == Kind::Code) {
        if !words(&piece.text).any(|w| w == "unsafe") {
            continue;
        }
        let place = format!("{}:{}", file.path, piece.line);
        if !UNSAFE.contains(&file.path.as_str()) {
            out.push(format!("{place}: `unsafe` in a file that is not on the list"));
        }
        // A declaration, or the type of a foreign function.
        let declares = ["unsafe fn", "unsafe trait", "unsafe extern"].iter().any(|d| piece.text.contains(d));
        if !declares && !documented(&lines, piece.line - 1) {
            out.push(format!("{place}: `unsafe` without a SAFETY comment"));
        }
    }
    out
}

#[test]
fn unsafe_stays_in_its_files_and_is_explained() {
    check(files().iter().filter(|f| f.path.ends_with(".rs")).flat_map(broken_unsafe).collect());
    for path in UNSAFE {
        assert!(root().join(path).exists(), "{path} is on the list of files with `unsafe` but does not exist");
    }
}

#[test]
fn rule_unsafe_fires() {
    let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
    let bare = "fn f() {\n    unsafe { g() }\n}\n";
    let good = "fn f() {\n    // SAFETY: g has no requirement.\n    let x =\n        unsafe { g() };\n}\n";
    let stale = "// SAFETY: of another.\nlet y = 1;\nunsafe { g() };\n";
    assert_eq!(broken_unsafe(&file("tools/src/a.rs", good)).len(), 1);
    assert_eq!(broken_unsafe(&file("tools/src/a.rs", bare)).len(), 2);
    assert_eq!(broken_unsafe(&file(UNSAFE[0], bare)).len(), 1);
    assert_eq!(broken_unsafe(&file(UNSAFE[0], stale)).len(), 1);
    assert!(broken_unsafe(&file(UNSAFE[0], good)).is_empty());
    assert!(broken_unsafe(&file("tools/src/a.rs", "// unsafe\nlet s = \"unsafe\"; let unsafe_code = 1;")).is_empty());
}

// Text.

/// Rules for every source: ASCII, at most 120 columns, nothing left to do, a header.
fn broken_source(file: &File) -> Vec<String> {
    // A unit test module named tests.rs speaks of the module above it, which has the header.
    let headed = file.path.ends_with(".rs") && !file.path.ends_with("/tests.rs");
    let undone = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!"), concat!("un", "implemented!")];
    let mut out = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let place = format!("{}:{}", file.path, number + 1);
        if !line.is_ascii() {
            out.push(format!("{place}: not ASCII"));
        }
        if line.chars().count() > 120 {
            out.push(format!("{place}: {} columns", line.chars().count()));
        }
        if line.ends_with([' ', '\t']) {
            out.push(format!("{place}: white space at the end of the line"));
        }
        out.extend(undone.iter().filter(|w| line.contains(**w)).map(|w| format!("{place}: {w}")));
    }
    if headed && !file.text.starts_with("//!") {
        out.push(format!("{}: no module header (`//!`)", file.path));
    }
    if !file.text.ends_with('\n') {
        out.push(format!("{}: no newline at the end", file.path));
    }
    out
}

fn is_source(path: &str) -> bool {
    let ending = Path::new(path).extension().and_then(|e| e.to_str());
    matches!(ending, Some("rs" | "toml" | "py" | "sh" | "cu" | "cuh")) || path.starts_with(".ci/")
}

#[test]
fn sources_are_ascii_short_lined_headed_and_finished() {
    check(files().iter().filter(|f| is_source(&f.path)).flat_map(broken_source).collect());
}

#[test]
fn rule_source_fires() {
    let broken = |text: &str| broken_source(&File { path: "a.rs".into(), text: text.into() }).len();
    assert_eq!(broken("//! Good.\nfn f() {}\n"), 0);
    assert_eq!(broken("fn f() {}\n"), 1);
    assert_eq!(broken("//! \u{e9}\n"), 1);
    assert_eq!(broken(&format!("//! {}\n", "x".repeat(117))), 1);
    assert_eq!(broken(&format!("//! {}\n", "x".repeat(116))), 0);
    assert_eq!(broken(concat!("//! A.\nfn f() { to", "do!() }\n")), 1);
    assert_eq!(broken("//! A.\nfn f() {} \n"), 1);
    assert_eq!(broken("//! A."), 1);
}

/// Words about where the project was written. It speaks of itself alone.
fn broken_origin(file: &File) -> Vec<String> {
    let paths = [concat!("/wo", "rk/"), concat!("crates", ".io")];
    let whole = [concat!("ses", "sion"), concat!("ses", "sions"), concat!("py", "pi")];
    let mut out = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let lower = line.to_lowercase();
        let found =
            paths.iter().find(|p| lower.contains(**p)).or(whole.iter().find(|w| words(&lower).any(|x| x == **w)));
        out.extend(found.map(|w| format!("{}:{}: {w}", file.path, number + 1)));
    }
    out
}

#[test]
fn the_project_speaks_of_itself_alone() {
    let own = |f: &&File| f.path != "Cargo.lock" && !f.path.starts_with("tests/golden/chat/");
    check(files().iter().filter(own).flat_map(broken_origin).collect());
}

#[test]
fn rule_origin_fires() {
    let broken = |text: &str| broken_origin(&File { path: "README.md".into(), text: text.into() }).len();
    assert_eq!(broken(concat!("see /wo", "rk/x\nA Ses", "sion.\nfrom Py", "PI\nand crates", ".io\n")), 4);
    assert_eq!(broken("work/x, obsessions, happyping"), 0);
}

// Modules.

/// Whether a file is a program, a library, or a test's or bench's main file: nobody declares it.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let [.., folder, name] = parts[..] else { return true };
    matches!(name, "lib.rs" | "main.rs") || folder == "bin" || parts.len() == 3 && matches!(folder, "tests" | "benches")
}

/// Files that no file beside or above them declares as a module: the compiler passes over them, and so do tests.
fn lost_modules(files: &[File]) -> Vec<String> {
    let folder = |path: &str| path.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
    let is_lost = |file: &&File| {
        let place = folder(&file.path);
        let name = &file.path[place.len() + 1..];
        let (place, module) = match name.trim_end_matches(".rs") {
            "mod" => (folder(&place), place.rsplit('/').next().unwrap_or_default()),
            stem => (place.clone(), stem),
        };
        let places = [folder(&place), place];
        let declares = |other: &File| {
            let mut lines = other.text.lines().filter(|line| !is_comment(line));
            places.contains(&folder(&other.path))
                && lines.any(|line| line.ends_with(&format!("mod {module};")) || line.ends_with(&format!("/{name}\"]")))
        };
        !files.iter().filter(|other| other.path.ends_with(".rs")).any(declares)
    };
    let modules = files.iter().filter(|file| file.path.ends_with(".rs") && !is_root(&file.path));
    modules.filter(is_lost).map(|file| format!("{}: no module declares it", file.path)).collect()
}

#[test]
fn every_source_file_is_a_module_of_something() {
    check(lost_modules(&files()));
}

#[test]
fn rule_modules_fires() {
    let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
    let all = [
        file("engine/src/lib.rs", "mod a;\n"),
        file("engine/src/a/mod.rs", "pub(crate) mod b;\n#[cfg(test)]\nmod tests;\n"),
        file("engine/src/a/b.rs", "// mod c;\n"),
        file("engine/src/a/tests.rs", ""),
        file("engine/tests/x.rs", "#[path = \"x/y.rs\"]\nmod y;\n"),
        file("engine/tests/x/y.rs", ""),
        file("engine/src/a/c.rs", ""),
    ];
    assert_eq!(lost_modules(&all), ["engine/src/a/c.rs: no module declares it"]);
    assert_eq!(lost_modules(&all[1..]).len(), 2);
}

// Top level.

fn broken_top(paths: &[String]) -> Vec<String> {
    let top: BTreeSet<&str> = paths.iter().filter_map(|p| p.split('/').next()).collect();
    let extra = top.iter().filter(|t| !TOP.contains(t)).map(|t| format!("{t}: does not belong at the top level"));
    let missing = TOP.iter().filter(|t| !top.contains(*t)).map(|t| format!("{t}: missing at the top level"));
    extra.chain(missing).collect()
}

#[test]
fn the_top_level_holds_exactly_what_it_should() {
    check(broken_top(&paths()));
}

#[test]
fn rule_top_fires() {
    let exact: Vec<String> = TOP.iter().map(|t| format!("{t}/x")).collect();
    assert!(broken_top(&exact).is_empty());
    assert_eq!(broken_top(&exact[1..]).len(), 1);
    assert_eq!(broken_top(&[exact.clone(), vec!["notes.txt".into()]].concat()).len(), 1);
}
