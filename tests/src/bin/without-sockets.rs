//! Runs a command that is killed (SIGSYS) as soon as it makes a system call about sockets:
//! `without-sockets PROGRAM ARGUMENTS`.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::os::unix::process::CommandExt;

/// Socket system calls of this architecture, all that begin a connection or wait for one.
const CALLS: [i64; 6] =
    [libc::SYS_socket, libc::SYS_socketpair, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_sendto];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().ok_or("usage: without-sockets PROGRAM ARGUMENTS")?;
    let rules = CALLS.into_iter().map(|call| (call, Vec::new())).collect();
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::KillProcess, architecture)?;
    seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?;
    Err(std::process::Command::new(program).args(arguments).exec().into())
}
