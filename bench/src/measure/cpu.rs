//! Measures how much processor time a process and its children have used.
//!
//! Throughput varies with the load of the machine. The processor time per item varies less.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::Client;

/// The kernel's clock ticks per second: 100 on every Linux.
const TICKS: u64 = 100;

/// The processor time of a process and its children, running and ended.
pub(crate) fn used_by(pid: u32) -> Result<Duration> {
    let mut ticks = ticks_of(pid)?;
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace() {
        // A child that ended in the meantime is included in its parent's time at the next call.
        ticks += ticks_of(child.parse()?).unwrap_or(0);
    }
    Ok(Duration::from_millis(ticks * (1_000 / TICKS)))
}

/// The processor time of a process and its children, in milliseconds.
pub(crate) fn used_by_ms(pid: u32) -> Result<f64> {
    Ok(used_by(pid)?.as_secs_f64() * 1e3)
}

/// The pid of the server behind a connection.
pub(crate) async fn postmaster(client: &Client) -> Result<u32> {
    let sql = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int";
    let pid: i32 = client.query_one(sql, &[]).await.context("find the server's process")?.try_get(0)?;
    Ok(u32::try_from(pid)?)
}

fn ticks_of(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("read what a process has used")?;
    // The name is in parentheses and may contain anything. The times of the process and of its children are the 12th to
    // 15th fields after it.
    let (_, fields) = stat.rsplit_once(") ").context("read what a process has used")?;
    Ok(fields.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum())
}
