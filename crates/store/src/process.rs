//! Processes: each has one row, which stores its heartbeat. A heartbeat returns what the process must learn.
//!
//! Invariants
//! - A process gets a new id at each start, and whenever it was declared dead. An id is never reused.
//! - Only a process whose own heartbeats were steady may declare another dead.
//!
//! Not here: when to send heartbeats and what to conclude (`server::process::heartbeat`).

pub mod lease;

use std::time::Duration;

use kernel::ids::{ExecutionId, ProcessId};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store, migrate, release};

/// What a process registers about itself.
#[derive(Clone, Debug)]
pub struct ProcessRegistration {
    pub id: ProcessId,
    pub host: String,
    pub pid: i32,
    pub roles: Vec<String>,
    pub version: String,
}

/// What a heartbeat returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The process was declared dead: it must stop its work and register again under a new id.
    pub declared_dead: bool,
    /// The shards that the process owns.
    pub shards: Vec<i16>,
    /// Shards whose owner has no room for new work: this process claims for them too.
    pub claim_shards: Vec<i16>,
    /// How many runs of dead processes, in all shards, no process has had room for yet.
    pub waiting: usize,
    /// Runs of this process whose cancellation was requested.
    pub cancel: Vec<ExecutionId>,
    /// Runs of this process for which an answer or another change arrived.
    pub wake: Vec<ExecutionId>,
    /// Other processes that have ended, or have been silent for too long.
    pub dead: Vec<ProcessId>,
}

/// What a process reports with each heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatReport {
    /// The process takes a share of the shards.
    pub dispatches: bool,
    /// The process has room for new work.
    pub has_room: bool,
    /// How many runs of dead processes the process found in its shards and has no room for.
    pub waiting: usize,
}

/// Registers a process, on the connection that carries its heartbeat.
pub async fn register(client: &Client, registration: &ProcessRegistration) -> Result<(), Error> {
    let ProcessRegistration { id, host, pid, roles, version } = registration;
    client.execute(sql!("process/register"), &[&id.0, host, pid, roles, version, &release::number()]).await?;
    Ok(())
}

/// Marks a process id as ended: at shutdown, or because the process gave up this id.
pub async fn end(client: &Client, process: ProcessId) -> Result<(), Error> {
    client.execute(sql!("process/end"), &[&process.0]).await?;
    Ok(())
}

/// Sends one heartbeat.
pub async fn heartbeat(
    client: &Client,
    process: ProcessId,
    report: HeartbeatReport,
    shard_lease: Duration,
    dead_after: Duration,
) -> Result<HeartbeatReply, Error> {
    let HeartbeatReport { dispatches, has_room, waiting } = report;
    let waiting = i32::try_from(waiting).unwrap_or(i32::MAX);
    let (lease, dead) = (shard_lease.as_secs_f64(), dead_after.as_secs_f64());
    let answer =
        client.query(sql!("process/heartbeat"), &[&process.0, &dispatches, &has_room, &waiting, &lease, &dead]).await;
    let rows = match answer {
        // The process was silent until the functions of its release were dropped as unused.
        Err(error) if release::is_missing(&error) => {
            migrate::restore_functions(client).await?;
            return Ok(HeartbeatReply { declared_dead: true, ..HeartbeatReply::default() });
        }
        answer => answer?,
    };
    let mut reply = HeartbeatReply::default();
    for row in &rows {
        let id = || row.try_get::<_, Uuid>("id");
        match row.try_get("kind")? {
            "declared_dead" => reply.declared_dead = true,
            "shard" => reply.shards.push(row.try_get("shard")?),
            "claim" => reply.claim_shards.push(row.try_get("shard")?),
            "waiting" => reply.waiting = usize::try_from(row.try_get::<_, i64>("runs")?).unwrap_or(0),
            "cancel" => reply.cancel.push(ExecutionId(id()?)),
            "wake" => reply.wake.push(ExecutionId(id()?)),
            "dead" => reply.dead.push(ProcessId(id()?)),
            other => return Err(Error::Corrupt(format!("a heartbeat returned the unknown row kind {other}"))),
        }
    }
    Ok(reply)
}

impl Store {
    /// Marks a process as ended, at shutdown.
    pub async fn end_process(&self, process: ProcessId) -> Result<(), Error> {
        self.execute(sql!("process/end"), &[&process.0]).await.map(drop)
    }

    /// Declares processes dead that were silent for longer than `after`.
    pub async fn end_silent(&self, after: Duration) -> Result<Vec<ProcessId>, Error> {
        let rows = self.query(sql!("process/end_silent"), &[&after.as_secs_f64()]).await?;
        rows.iter().map(|row| Ok(ProcessId(row.try_get(0)?))).collect()
    }

    /// Declares every other process dead. Only a process that holds the lock of the data directory may call this: no
    /// other process can use its database.
    pub async fn end_all_but(&self, process: ProcessId) -> Result<u64, Error> {
        self.execute(sql!("process/end_all_but"), &[&process.0]).await
    }

    /// Deletes processes that ended long ago and own nothing, and drops the functions of releases that no process uses.
    pub async fn delete_old_processes(&self) -> Result<u64, Error> {
        match self.drop_unused_releases().await {
            Ok(dropped) => {
                for number in dropped {
                    tracing::info!(release = number, "Dropped the functions of an unused release");
                }
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "Failed to drop the functions of unused releases; a later pass retries");
            }
        }
        self.execute(sql!("process/delete_old"), &[]).await
    }
}
