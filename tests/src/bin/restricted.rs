//! Runs a command that is denied something: `restricted WHAT[,WHAT...] PROGRAM ARGUMENTS`.
//!
//! | WHAT | what happens |
//! | --- | --- |
//! | `sockets` | a system call about sockets kills it (SIGSYS) |
//! | `uring-eperm` | io_uring is forbidden, as a container's profile or the sysctl does it |
//! | `uring-enosys` | io_uring is hidden, as an older profile does it |
//! | `direct` | no file takes O_DIRECT |
//! | `threads` | no thread starts |
//! | `processes=NUMBER` | that many processes and threads of this user, who is not root |
//! | `memlock=BYTES` | that much lockable memory, without the privilege to exceed it |

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::os::unix::process::CommandExt;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Socket system calls of this architecture, all that begin a connection or wait for one.
const SOCKETS: [i64; 6] =
    [libc::SYS_socket, libc::SYS_socketpair, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_sendto];

const URING: [i64; 3] = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let usage = "usage: restricted WHAT[,WHAT...] PROGRAM ARGUMENTS";
    let what = arguments.next().ok_or(usage)?.into_string().map_err(|_| usage)?;
    let program = arguments.next().ok_or(usage)?;
    what.split(',').try_for_each(deny)?;
    Err(std::process::Command::new(program).args(arguments).exec().into())
}

fn deny(what: &str) -> Result<()> {
    let errno = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
    match what {
        "sockets" => filter(calls(&SOCKETS), SeccompAction::KillProcess),
        "uring-eperm" => filter(calls(&URING), errno(libc::EPERM)),
        "uring-enosys" => filter(calls(&URING), errno(libc::ENOSYS)),
        "direct" => filter([(libc::SYS_fcntl, vec![sets_direct()?])].into(), errno(libc::EINVAL)),
        "threads" => {
            // Its flags are in memory, which a filter does not see; without it the C library uses the older call.
            filter(calls(&[libc::SYS_clone3]), errno(libc::ENOSYS))?;
            filter([(libc::SYS_clone, vec![starts_thread()?])].into(), errno(libc::EAGAIN))
        }
        _ => match what.split_once('=') {
            Some(("memlock", bytes)) => lock_at_most(bytes.parse()?),
            Some(("processes", number)) => {
                let number = Some(number.parse()?);
                Ok(setrlimit(Resource::Nproc, Rlimit { current: number, maximum: number })?)
            }
            _ => Err(format!("nothing is known of {what}").into()),
        },
    }
}

fn calls(numbers: &[i64]) -> BTreeMap<i64, Vec<SeccompRule>> {
    numbers.iter().map(|call| (*call, Vec::new())).collect()
}

fn sets_direct() -> Result<SeccompRule> {
    let direct = libc::O_DIRECT as u64;
    let argument = |index, operator, value| SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value);
    Ok(SeccompRule::new(vec![
        argument(1, SeccompCmpOp::Eq, libc::F_SETFL as u64)?,
        argument(2, SeccompCmpOp::MaskedEq(direct), direct)?,
    ])?)
}

fn starts_thread() -> Result<SeccompRule> {
    let thread = libc::CLONE_THREAD as u64;
    let flags = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(thread), thread)?;
    Ok(SeccompRule::new(vec![flags])?)
}

fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, action: SeccompAction) -> Result<()> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture)?;
    Ok(seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?)
}

/// The limit, and for a privileged user the loss of what exceeds it when the program starts.
fn lock_at_most(bytes: u64) -> Result<()> {
    match remove_capability_from_bounding_set(CapabilitySet::IPC_LOCK) {
        // Without the privilege to drop it, there is none to drop.
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(setrlimit(Resource::Memlock, Rlimit { current: Some(bytes), maximum: Some(bytes) })?)
}
