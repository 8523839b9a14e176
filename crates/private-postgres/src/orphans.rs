//! Servers that outlived the process that started them.
//!
//!     still stopping ──5 s──▶ told to stop (SIGINT) ──10 s──▶ told to abort (SIGQUIT) ──10 s──▶ given up on
//!
//! On Linux an orphan is on its way out already, told by the kernel. Elsewhere, or if the server's
//! own death left a backend busy, somebody has to wait or to ask.
//!
//! Invariants
//! - Called with the lock held: a server of this cluster has no living owner.
//! - A process that is dead but not reaped, or is another program, or serves another cluster, is no orphan.
//! - `postmaster.pid` is removed only when no process of the cluster is left.

use std::{
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Error, Progress};

pub(super) const POLL: Duration = Duration::from_millis(10);

/// Returns when no server of this cluster is left, nor its `postmaster.pid`.
pub(super) fn clear(cluster: &Path, progress: &Progress) -> Result<(), Error> {
    if any(cluster) {
        progress("waiting for the previous server to stop…");
    }
    let steps = [(None, 5), (Some(Signal::SIGINT), 10), (Some(Signal::SIGQUIT), 10)];
    for (signal, patience) in steps {
        if let Some(signal) = signal {
            for pid in living(cluster) {
                let _ = kill(pid, signal); // It may have ended since it was seen.
            }
        }
        if is_cleared_within(cluster, Duration::from_secs(patience)) {
            return remove_pid_file(cluster);
        }
    }
    match living(cluster).first() {
        Some(pid) => Err(Error::Orphan { cluster: cluster.to_owned(), pid: pid.as_raw() }),
        None => remove_pid_file(cluster),
    }
}

pub(super) fn any(cluster: &Path) -> bool {
    !living(cluster).is_empty()
}

/// The fields of `postmaster.pid` we use: the server's process, and whether it says it is ready.
pub(super) fn read_pid_file(cluster: &Path) -> Option<(Pid, bool)> {
    let text = fs::read_to_string(cluster.join("postmaster.pid")).ok()?;
    let mut lines = text.lines();
    let pid = lines.next()?.trim().parse().ok().filter(|pid| *pid > 0)?;
    // The eighth line is the status.
    let is_ready = lines.nth(6).is_some_and(|status| status.trim() == "ready");
    Some((Pid::from_raw(pid), is_ready))
}

fn is_cleared_within(cluster: &Path, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while any(cluster) {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(POLL);
    }
    true
}

fn remove_pid_file(cluster: &Path) -> Result<(), Error> {
    let path = cluster.join("postmaster.pid");
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io_at("remove", &path)(error)),
        _ => Ok(()),
    }
}

/// The server's main process alone while it lives, as its children go with it; else any they left.
#[cfg(target_os = "linux")]
fn living(cluster: &Path) -> Vec<Pid> {
    // Another user's working directory may be hidden from us, even from root in a container; then
    // the word of the pid file is enough.
    let main = read_pid_file(cluster).map(|(pid, _)| pid);
    if let Some(pid) = main.filter(|pid| is_postgres(*pid) && works_in(*pid, cluster).unwrap_or(true)) {
        return vec![pid];
    }
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    pids.filter(|pid| works_in(*pid, cluster).unwrap_or(false) && is_postgres(*pid)).collect()
}

/// Whether this is a living process of that program; one that is dead but not reaped is not.
#[cfg(target_os = "linux")]
fn is_postgres(pid: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // "71 (postgres) S 1 …", where the name may itself hold parentheses.
    let name_and_rest = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") "));
    name_and_rest.is_some_and(|(name, rest)| name == "postgres" && !rest.starts_with(['Z', 'X']))
}

#[cfg(target_os = "linux")]
fn works_in(pid: Pid, cluster: &Path) -> io::Result<bool> {
    fs::read_link(format!("/proc/{pid}/cwd")).map(|cwd| cwd == cluster)
}

#[cfg(not(target_os = "linux"))]
fn living(cluster: &Path) -> Vec<Pid> {
    let Some((pid, _)) = read_pid_file(cluster) else { return Vec::new() };
    let mut ps = std::process::Command::new("ps");
    let Ok(output) = ps.args(["-o", "stat=,command=", "-p", &pid.to_string()]).output() else { return Vec::new() };
    let line = String::from_utf8_lossy(&output.stdout);
    let serves = !line.trim_start().starts_with('Z') && line.contains("postgres -D") && {
        line.contains(&cluster.display().to_string())
    };
    if serves { vec![pid] } else { Vec::new() }
}
