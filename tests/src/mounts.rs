//! Tests that need file systems of their own: small ones, ones in RAM, ones on a loop device.
//!
//! Such a test runs again as a child process in a private mount namespace, so that nothing that it mounts is seen
//! outside or outlives it, however it ends. Without root a user namespace serves, where the system allows one; it
//! has no loop devices. What cannot be had is skipped, with a line that says why.

use crate::skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Set in the child.
const INSIDE: &str = "MT_PRIVATE_MOUNTS";

/// What a test mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// tmpfs or ramfs.
    Ram,
    /// An overlay over them.
    Overlay,
    /// ext4 on a loop device.
    Loop,
}

/// Runs `body`, all that the calling test does, where it can mount. It must be the closure of the test function itself:
/// its type has the test's name.
pub fn privately<F: FnOnce()>(needs: Needs, body: F) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let name = std::any::type_name::<F>();
    let name = name.split_once("::").map_or(name, |(_, rest)| rest).trim_end_matches("::{{closure}}");
    if let Err(why) = probe(needs) {
        return skipped(name, &why);
    }
    let program = std::env::current_exe().expect("the test has a path");
    let mut command = unshared();
    let command = command.arg(program).args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    let Output { status, stdout, stderr } = command.output().expect("unshare starts");
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    eprint!("{err}");
    assert!(status.success() && out.contains(" 1 passed"), "{name}, in its own namespace:\n{out}");
}

/// A command that runs its arguments in a namespace of its own.
fn unshared() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
}

fn probe(needs: Needs) -> Result<(), String> {
    if needs == Needs::Loop && !rustix::process::geteuid().is_root() {
        return Err("loop devices need root".into());
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("image");
    let script = match needs {
        Needs::Ram => "mount -t tmpfs none \"$1\"",
        Needs::Overlay => {
            "mount -t tmpfs none \"$1\" && cd \"$1\" && mkdir l u w && \
             mount -t overlay none -o lowerdir=l,upperdir=u,workdir=w l"
        }
        Needs::Loop => "truncate -s 4M \"$2\" && mkfs.ext4 -q \"$2\" && mount -o loop \"$2\" \"$1\"",
    };
    let output = unshared().args(["sh", "-c", script, "sh"]).arg(folder.path()).arg(image).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("cannot mount: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("cannot run unshare: {error}")),
    }
}

/// Runs a program that must succeed; gives its output.
pub fn must(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {err}", arguments.join(" "));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

/// Mounts a file system in RAM, `tmpfs` or `ramfs`, in a folder, which is made.
pub fn mount_ram(kind: &str, options: &str, at: &Path) {
    std::fs::create_dir_all(at).expect("the folder can be made");
    must("mount", &["-t", kind, "-o", options, "none", text(at)]);
}

/// Mounts an overlay in a folder, which is made: what is written there goes to a tmpfs beside it, of `bytes` bytes.
pub fn mount_overlay(at: &Path, bytes: u64) {
    let layers = at.with_extension("layers");
    mount_ram("tmpfs", &format!("size={bytes}"), &layers);
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| layers.join(name));
    for folder in [&lower, &upper, &work, &at.to_path_buf()] {
        std::fs::create_dir_all(folder).expect("the folder can be made");
    }
    let [lower, upper, work] = [&lower, &upper, &work].map(|folder| text(folder));
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    must("mount", &["-t", "overlay", "-o", &options, "none", text(at)]);
}

/// An ext4 in a file.
pub struct Ext4 {
    /// The file.
    pub image: PathBuf,
    /// Where it is mounted.
    pub at: PathBuf,
    /// Bytes of its device's sectors.
    pub sector: u32,
}

impl Ext4 {
    /// Makes and mounts one of `bytes` bytes, which the file takes only as they are written.
    pub fn new(image: PathBuf, at: PathBuf, bytes: u64, sector: u32) -> Ext4 {
        let file = std::fs::File::create(&image).expect("the image can be made");
        file.set_len(bytes).expect("the image can be sized");
        must("mkfs.ext4", &["-q", "-b", "4096", "-m", "0", text(&image)]);
        let ext4 = Ext4 { image, at, sector };
        ext4.mount();
        ext4
    }

    /// Mounts it; an error found in it turns it read-only. The device goes when it is unmounted.
    pub fn mount(&self) {
        std::fs::create_dir_all(&self.at).expect("the folder can be made");
        let sector = self.sector.to_string();
        let device = must("losetup", &["--find", "--show", "--sector-size", &sector, text(&self.image)]);
        must("mount", &["-o", "errors=remount-ro", &device, text(&self.at)]);
        must("losetup", &["--detach", &device]);
    }

    /// Unmounts it. The ring of a process that was killed lets go of its files some time after the process has ended.
    pub fn unmount(&self) {
        let umount = || Command::new("umount").arg(&self.at).output().expect("umount starts");
        for _ in 0..500 {
            if umount().status.success() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        must("umount", &[text(&self.at)]);
    }

    /// Turns it read-only as an error on the device would, whatever is open on it.
    pub fn turn_read_only(&self) {
        let device = must("findmnt", &["--noheadings", "--output", "SOURCE", "--mountpoint", text(&self.at)]);
        let name = device.strip_prefix("/dev/loop").expect("a loop device, never another");
        std::fs::write(format!("/sys/fs/ext4/loop{name}/trigger_fs_error"), "1").expect("the system takes it");
    }
}

impl Ext4 {
    /// What a power loss leaves: everything that was not synced is gone, and nothing can be written any more. Unmount
    /// and mount it to go on. (Perl is there on every Debian system, and the call needs no code of ours.)
    pub fn lose_power(&self) {
        const SHUTDOWN: &str = "0x8004587d";
        const WITHOUT_FLUSH: &str = "2";
        let script = "open(F, '<', $ARGV[0]) and ioctl(F, hex($ARGV[1]), pack('L', $ARGV[2])) or die \"$!\\n\"";
        must("perl", &["-e", script, text(&self.at), SHUTDOWN, WITHOUT_FLUSH]);
    }
}

/// Fills the file system of a folder to its last byte; gives the file that does it.
pub fn fill(folder: &Path) -> PathBuf {
    use std::io::Write;
    let path = folder.join("filler");
    let mut file = std::fs::File::create(&path).expect("the filler can be made");
    for bytes in [1 << 20, 4096, 512, 1] {
        while file.write_all(&vec![0x5a; bytes]).is_ok() {}
    }
    file.sync_all().expect("the filler is durable");
    path
}
