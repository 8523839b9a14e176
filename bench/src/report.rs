//! Prints the output of a run: text for people while it runs, and one line of JSON at its end.
//!
//! Invariants
//! - Standard output gets only the figures, as one line of JSON. Everything else goes to standard error.
//! - Figures come with the machine they were measured on.

use std::io::{IsTerminal, Write};

use serde_json::{Value, json};

/// Prints the figures. This is the last thing a run does.
pub fn print_figures(value: &Value) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}

/// Prints a line for people. A failure to print is ignored.
pub fn say(text: impl std::fmt::Display) {
    let mut out = std::io::stderr().lock();
    let clear = if out.is_terminal() { "\r\x1b[2K" } else { "" };
    drop(writeln!(out, "{clear}{text}"));
}

/// Prints a line that the next one overwrites. Prints nothing if the output is not a terminal.
pub fn progress(text: impl std::fmt::Display) {
    let mut out = std::io::stderr().lock();
    if out.is_terminal() {
        drop(write!(out, "\r\x1b[2K{text}").and_then(|()| out.flush()));
    }
}

/// Describes the machine, in a few fields.
pub fn machine() -> Value {
    let cpu = first_line_with("/proc/cpuinfo", "model name");
    let memory_mb = first_line_with("/proc/meminfo", "MemTotal").and_then(|kb| kilobytes(&kb)).map(|kb| kb / 1024);
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    json!({
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "cpu": cpu,
        "memory_mb": memory_mb,
        "os": std::env::consts::OS,
        "load_at_start": load.and_then(|load| load.split(' ').next().and_then(|one| one.parse::<f64>().ok())),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
    })
}

/// How much memory a process uses now, in whole MB.
pub fn rss_mb(pid: u32) -> Option<u64> {
    kilobytes(&first_line_with(&format!("/proc/{pid}/status"), "VmRSS")?).map(|kb| kb / 1024)
}

/// How much memory a process uses now, in MB, with the fraction.
pub fn resident_mb(pid: u32) -> Option<f64> {
    megabytes(pid, "VmRSS")
}

/// The maximum memory that a process has used since its start, in MB.
pub fn peak_mb(pid: u32) -> Option<f64> {
    megabytes(pid, "VmHWM")
}

fn megabytes(pid: u32, name: &str) -> Option<f64> {
    let kb = kilobytes(&first_line_with(&format!("/proc/{pid}/status"), name)?)?;
    u32::try_from(kb).ok().map(|kb| f64::from(kb) / 1024.0)
}

fn first_line_with(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

fn kilobytes(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}
