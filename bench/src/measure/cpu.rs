//! How much processor time a process and its children have used.
//!
//! Throughput drifts with whatever else the machine does; the time an item costs drifts less.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::Client;

/// The kernel's clock ticks a second: 100 wherever Linux runs.
const TICKS: u64 = 100;

/// What a process has used, with its children, living and gone.
pub(crate) fn used_by(pid: u32) -> Result<Duration> {
    let mut ticks = ticks_of(pid)?;
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace() {
        // One that ended meanwhile is counted by its parent the next time.
        ticks += ticks_of(child.parse()?).unwrap_or(0);
    }
    Ok(Duration::from_millis(ticks * (1_000 / TICKS)))
}

/// The same in milliseconds.
pub(crate) fn used_by_ms(pid: u32) -> Result<f64> {
    Ok(used_by(pid)?.as_secs_f64() * 1e3)
}

/// The pid of the server that a connection leads to.
pub(crate) async fn postmaster(client: &Client) -> Result<u32> {
    let sql = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int";
    let pid: i32 = client.query_one(sql, &[]).await.context("find the server's process")?.try_get(0)?;
    Ok(u32::try_from(pid)?)
}

fn ticks_of(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("read what a process has used")?;
    // The name stands in brackets and may hold anything; utime, stime and those of children are the 12th to 15th after
    // it.
    let (_, fields) = stat.rsplit_once(") ").context("read what a process has used")?;
    Ok(fields.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum())
}
