//! Orphans: servers that still run although the process that started them has ended.
//!
//!     still stopping ──5 s──▶ SIGINT (stop) ──10 s──▶ SIGQUIT (abort) ──10 s──▶ an error: the server does not stop
//!
//! On Linux the kernel has already sent an orphan the signal to stop, so this code first only waits. On other systems,
//! or if a backend is still busy after the server died, it also sends signals.
//!
//! Invariants
//! - Called with the lock on the data directory held, so no living process owns a server of this cluster.
//! - A zombie process, another program, or a server of another cluster is not an orphan.
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

/// Stops every orphan of this cluster and removes its `postmaster.pid`. Fails if an orphan does not stop.
pub(super) fn clear(cluster: &Path, progress: &Progress) -> Result<(), Error> {
    if any(cluster) {
        progress("waiting for the previous server to stop…");
    }
    let steps = [(None, 5), (Some(Signal::SIGINT), 10), (Some(Signal::SIGQUIT), 10)];
    for (signal, patience) in steps {
        if let Some(signal) = signal {
            for pid in living(cluster) {
                let _ = kill(pid, signal); // Fails if the process has ended meanwhile, which is what we want.
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

/// Reads `postmaster.pid`: the id of the server's process, and whether the server reports that it is ready.
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

/// The processes to wait for: the server's main process while it lives, because its children end with it. After the
/// main process died: the children that still run.
#[cfg(target_os = "linux")]
fn living(cluster: &Path) -> Vec<Pid> {
    // The working directory of another user's process may be unreadable, even for root in a container. The process
    // that the pid file names then counts as the server if it is a PostgreSQL process.
    let main = read_pid_file(cluster).map(|(pid, _)| pid);
    if let Some(pid) = main.filter(|pid| is_postgres(*pid) && works_in(*pid, cluster).unwrap_or(true)) {
        return vec![pid];
    }
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    pids.filter(|pid| works_in(*pid, cluster).unwrap_or(false) && is_postgres(*pid)).collect()
}

/// Whether this is a living process of PostgreSQL. A zombie is not.
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
