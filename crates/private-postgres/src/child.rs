//! Starts a program as the server's user, so that it ends with this process.
//!
//!     us ──spawn──▶ us again: drop user, die with parent, own group, parent still there? ──exec──▶ postgres
//!
//! The steps before exec must run in the new process, after fork and before exec. Rust allows that only in `unsafe`
//! code. So the new process first executes this program again, which takes the steps in safe code and then executes
//! PostgreSQL. Both executions keep the process id.
//!
//! Invariants
//! - The death signal (the signal that Linux sends when the parent dies) is set after the change of user, because a
//!   change of user clears the signal.
//! - The parent is checked after the death signal is set. So a parent that dies is noticed, before or after the check.
//! - The program does not inherit the environment: PGPORT, PGOPTIONS or LC_ALL would change the server.

use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
};

use nix::unistd::{Gid, Pid, Uid, geteuid, getppid, setgid, setpgid, setuid};

use super::{Account, Error};

/// How to execute this program so that it calls [`child_main`] with the arguments after `args`.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// An absolute path: the working directory changes.
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl Launcher {
    /// A command that runs `program` as `account`. Spawn the command from a thread that outlives the program: on Linux
    /// the end of that thread stops the program.
    pub(super) fn command(&self, account: &Account, program: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .args([process::id(), account.uid.as_raw(), account.gid.as_raw()].map(|id| id.to_string()))
            .arg(program)
            .current_dir("/") // initdb needs a directory that its user may read; every user may read this one.
            .stdin(Stdio::null());
        command
    }
}

/// The main function of the re-executed process: replaces the process by the given program, or returns the error.
/// `args`: the process id of the parent, the ids of the user and the group to run as, the program, its arguments.
pub fn child_main(args: impl IntoIterator<Item = OsString>) -> Result<Infallible, Error> {
    let mut args = args.into_iter();
    let parent = number(args.next(), "the first argument must be a process id")?;
    let uid = number(args.next(), "the second argument must be a user id")?;
    let gid = number(args.next(), "the third argument must be a group id")?;
    let program =
        args.next().ok_or(Error::BadChildArguments("the fourth argument must be the path of the program to run"))?;

    become_user(Uid::from_raw(uid), Gid::from_raw(gid))?;
    die_with_parent()?;
    // A process group of its own: Ctrl-C in the terminal reaches only Forebay, which then stops the server cleanly.
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(Error::io("start a process group"))?;
    if u32::try_from(getppid().as_raw()) != Ok(parent) {
        return Err(Error::ParentGone);
    }
    let failed = Command::new(&program).args(args).env_clear().env("LC_ALL", "C").exec();
    Err(Error::io_at("run", Path::new(&program))(failed))
}

fn number(arg: Option<OsString>, what: &'static str) -> Result<u32, Error> {
    arg.as_deref().and_then(OsStr::to_str).and_then(|arg| arg.parse().ok()).ok_or(Error::BadChildArguments(what))
}

fn become_user(uid: Uid, gid: Gid) -> Result<(), Error> {
    if geteuid() == uid {
        return Ok(());
    }
    #[cfg(not(target_vendor = "apple"))]
    nix::unistd::setgroups(&[]).map_err(Error::io("leave root's groups"))?;
    setgid(gid).map_err(Error::io("take the server's group"))?;
    setuid(uid).map_err(Error::io("take the server's user"))
}

#[cfg(target_os = "linux")]
fn die_with_parent() -> Result<(), Error> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGINT).map_err(Error::io("ask to die with our parent"))
}

/// Other systems have no such signal: the next start finds the orphan and stops it (`orphans`).
#[cfg(not(target_os = "linux"))]
fn die_with_parent() -> Result<(), Error> {
    Ok(())
}
