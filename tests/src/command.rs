//! Running the command in child processes, in a folder of their own, and reading what it leaves behind.

use crate::small::Small;
use crate::tensors::Tensors;
use mt_trainer::batch::{Batch, MicroBatch, NO_TARGET};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A folder for one test, gone at its end, and the program under test.
pub struct Place {
    folder: tempfile::TempDir,
    program: PathBuf,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    /// What was run, for messages.
    pub line: String,
    /// Exit code; None if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Place {
    /// A fresh folder for runs of `program`.
    pub fn new(program: &str) -> Place {
        Place { folder: tempfile::tempdir().expect("a temporary folder"), program: PathBuf::from(program) }
    }

    /// The path of a name in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("the folder can be made");
        std::fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Reads a file as text.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Writes a model folder.
    pub fn model(&self, name: &str, model: &Small) -> PathBuf {
        model.write(&self.path(name));
        self.path(name)
    }

    /// The command with these words, split at white space; paths are relative to the folder. What needs a profile and
    /// does not name one gets the assumed one: probing takes seconds.
    pub fn command(&self, words: &str) -> Command {
        self.command_of(&self.program, with_profile(words))
    }

    /// The command under another one, `wrapper`, that gets it as its last arguments.
    pub fn wrapped(&self, wrapper: &[&str], words: &str) -> Command {
        let (program, before) = wrapper.split_first().expect("a wrapper has a program");
        let words = with_profile(words).into_iter().map(OsStr::new);
        let all = before.iter().map(OsStr::new).chain([self.program.as_os_str()]).chain(words);
        self.command_of(Path::new(program), all)
    }

    fn command_of(&self, program: &Path, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.folder.path()).stdin(Stdio::null()).env_remove("RUST_BACKTRACE");
        // Nothing of the machine's own settings comes in, nothing of the test's gets out.
        command.env("XDG_CONFIG_HOME", self.path("config")).env("XDG_CACHE_HOME", self.path("cache"));
        // A GPU that `--device auto` found would compute other bits; these tests are of the processor.
        command.env("CUDA_VISIBLE_DEVICES", "-1");
        command
    }

    /// Runs the command to its end.
    pub fn run(&self, words: &str) -> Finished {
        finish(self.command(words))
    }

    /// Runs the command, which must succeed.
    pub fn ok(&self, words: &str) -> Finished {
        let done = self.run(words);
        assert_eq!(done.code, Some(0), "{done}");
        done
    }

    /// Runs the command, which must be refused with this exit code and a message that holds each of the parts.
    pub fn refused(&self, words: &str, code: i32, parts: &[&str]) -> Finished {
        let done = self.run(words);
        assert_eq!(done.code, Some(code), "{done}");
        for part in parts {
            assert!(done.err.contains(part), "the message does not say {part:?}: {done}");
        }
        assert!(!done.err.contains("panicked"), "{done}");
        done
    }

    /// Starts the command and leaves it running; its output is thrown away.
    pub fn start(&self, words: &str) -> Child {
        let mut command = self.command(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts")
    }

    /// Starts the command, which prints JSON lines, and leaves it running.
    pub fn live(&self, words: &str) -> Live {
        Live::start(self.command(words))
    }

    /// The lines of a run's `metrics.jsonl`.
    pub fn metrics(&self, run: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(run).join("metrics.jsonl")).unwrap_or_default();
        text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect()
    }

    /// How many whole lines a run's `metrics.jsonl` has; a killed process may have torn the last.
    pub fn metrics_whole(&self, run: &str) -> usize {
        let text = std::fs::read_to_string(self.path(run).join("metrics.jsonl")).unwrap_or_default();
        text.matches('\n').count()
    }

    /// The losses of a run, in order of steps, as they were printed.
    pub fn losses(&self, run: &str) -> Vec<f64> {
        self.metrics(run).iter().map(|m| m["loss"].as_f64().expect("a loss")).collect()
    }

    /// Exports a run in f32 and reads the weights.
    pub fn weights(&self, run: &str) -> Tensors {
        let out = format!("{run}-weights");
        let _ = std::fs::remove_dir_all(self.path(&out));
        self.ok(&format!("export {run} --out {out}"));
        Tensors::read_model(&self.path(&out))
    }

    /// Bytes that a file, or all files below a folder, of the place take on the disk.
    pub fn bytes(&self, name: &str) -> u64 {
        use std::os::unix::fs::MetadataExt;
        fn below(path: &Path) -> u64 {
            match std::fs::symlink_metadata(path) {
                Ok(data) if data.is_dir() => {
                    std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| below(&e.path())).sum()
                }
                Ok(data) => data.blocks() * 512,
                Err(_) => 0,
            }
        }
        below(&self.path(name))
    }
}

/// A running command that prints JSON lines.
pub struct Live {
    line: String,
    child: Child,
    lines: BufReader<ChildStdout>,
    out: String,
}

impl Live {
    /// Starts it.
    pub fn start(mut command: Command) -> Live {
        let line = format!("{command:?}");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Live { line, child, lines, out: String::new() }
    }

    /// The next line; None at the end.
    pub fn event(&mut self) -> Option<Value> {
        let mut text = String::new();
        // A killed process may have torn its last line.
        self.lines.read_line(&mut text).ok().filter(|_| text.ends_with('\n'))?;
        self.out.push_str(&text);
        Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}")))
    }

    /// Waits for an event, which must come, and gives it.
    pub fn until(&mut self, event: &str, is: impl Fn(&Value) -> bool) -> Value {
        loop {
            match self.event() {
                Some(value) if value["event"] == event && is(&value) => return value,
                Some(_) => {}
                None => panic!("it ended without the event {event}: {}", self.line),
            }
        }
    }

    /// Waits for a step to be done.
    pub fn step(&mut self, step: u64) {
        self.until("step", |value| value["step"] == step);
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a child that was not waited for");
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Finished {
        while self.event().is_some() {}
        let mut err = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
        let code = self.child.wait().expect("the child ends").code();
        Finished { line: self.line, code, out: self.out, err }
    }

    /// Kills it (SIGKILL) and gives what it printed.
    pub fn kill(self) -> Finished {
        self.signal(Signal::KILL);
        self.finish()
    }
}

/// The words of a command, with a profile where one is needed and not named.
fn with_profile(words: &str) -> Vec<&str> {
    let mut words: Vec<&str> = words.split_whitespace().collect();
    let needs = matches!(words.first(), Some(&("train" | "resume" | "plan")));
    if needs && !words.iter().any(|word| matches!(*word, "--profile" | "--help" | "--list-shapes")) {
        words.extend(["--profile", "assumed"]);
    }
    words
}

/// Runs a command to its end.
pub fn finish(mut command: Command) -> Finished {
    let line = format!("{command:?}");
    let output = command.output().expect("the program starts");
    Finished {
        line,
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Finished {
    /// The lines that it had to say beside its output, apart from what computes, which every start says.
    pub fn notices(&self) -> Vec<&str> {
        self.err.lines().filter(|line| line.starts_with("mt: ") && !line.starts_with("mt: device: ")).collect()
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\nexit code {:?}\n--- out\n{}\n--- err\n{}", self.line, self.code, self.out, self.err)
    }
}

/// Rows `first..first + rows` of a text whose bytes are its ids, as one micro-batch.
pub fn byte_batch(text: &[u8], first: usize, rows: usize, seq: usize) -> Batch {
    let ids: Vec<u32> = text[first * seq..][..rows * seq].iter().map(|&b| u32::from(b)).collect();
    let targets = ids.chunks(seq).flat_map(|row| row[1..].iter().copied().chain([NO_TARGET])).collect();
    let positions = (0..rows).flat_map(|_| 0..seq as u32).collect();
    Batch { micro: vec![MicroBatch { rows, seq, ids, targets, positions, document: vec![0; rows * seq] }] }
}
