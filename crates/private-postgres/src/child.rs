//! Starting a program as the server's user, tied to our life.
//!
//!     us ──spawn──▶ us again: drop user, die with parent, own group, parent still there? ──exec──▶ postgres
//!
//! These steps belong between fork and exec, where only `unsafe` code may run. So we run ourselves
//! once more and do them there, in safe code: the process id stays the same through the exec.
//!
//! Invariants
//! - The death signal is set after the change of user, which would clear it.
//! - The parent is checked after the death signal is set: it cannot die unnoticed in between.
//! - The program gets nothing of our environment: PGPORT, PGOPTIONS or LC_ALL would change the server.

use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
};

use nix::unistd::{Gid, Pid, Uid, geteuid, getppid, setgid, setpgid, setuid};

use super::{Account, Error};

/// How to run ourselves so that [`child_main`] is called with whatever follows `args`.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// An absolute path: the working directory changes.
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl Launcher {
    /// To be spawned from a thread that outlives the program: its end is taken for our death.
    pub(super) fn command(&self, account: &Account, program: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .args([process::id(), account.uid.as_raw(), account.gid.as_raw()].map(|id| id.to_string()))
            .arg(program)
            .current_dir("/") // One that every user may read, as initdb wants.
            .stdin(Stdio::null());
        command
    }
}

/// The body of the re-executed process: becomes the program it is given, or says why not.
/// `args`: our parent's process id, the user and group ids to take, the program, its arguments.
pub fn child_main(args: impl IntoIterator<Item = OsString>) -> Result<Infallible, Error> {
    let mut args = args.into_iter();
    let parent = number(args.next(), "the first argument is a process id")?;
    let uid = number(args.next(), "the second argument is a user id")?;
    let gid = number(args.next(), "the third argument is a group id")?;
    let program = args.next().ok_or(Error::BadChildArguments("the fourth argument is a program"))?;

    become_user(Uid::from_raw(uid), Gid::from_raw(gid))?;
    die_with_parent()?;
    // A group of its own: Ctrl-C in the terminal is for us, who then stop the server in order.
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

/// Elsewhere the next start finds the orphan and stops it.
#[cfg(not(target_os = "linux"))]
fn die_with_parent() -> Result<(), Error> {
    Ok(())
}
