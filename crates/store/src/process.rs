//! Who is alive: a heartbeat row per process, and what each beat tells it.
//!
//! Invariants
//! - A process's id is fresh at each start and after each lapse; it is never used again.
//! - Only a process whose own heartbeats were steady may call another dead.
//!
//! Not here: keeping the beat and drawing conclusions (`server::process::heartbeat`).

pub mod lease;

use std::time::Duration;

use kernel::ids::{ExecutionId, ProcessId};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store, migrate, release};

/// How a process presents itself.
#[derive(Clone, Debug)]
pub struct Registration {
    pub id: ProcessId,
    pub host: String,
    pub pid: i32,
    pub roles: Vec<String>,
    pub version: String,
}

/// What a heartbeat brought back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The process was declared dead: it must stop its work and come back under a new id.
    pub gone: bool,
    /// The shards it looks after.
    pub shards: Vec<i16>,
    /// Shards whose owner is full: it claims for them as well.
    pub claim_shards: Vec<i16>,
    /// Runs of dead processes that no process has had room for yet, in all shards.
    pub waiting: usize,
    /// Own runs that somebody wants to end.
    pub cancel: Vec<ExecutionId>,
    /// Own runs that something came for.
    pub wake: Vec<ExecutionId>,
    /// Other processes that are over, or have been silent too long.
    pub dead: Vec<ProcessId>,
}

/// What a process says of itself with each heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// It looks after a share of the shards.
    pub dispatches: bool,
    /// It has room for new work.
    pub has_room: bool,
    /// Runs of dead processes in its shards that it has no room for.
    pub waiting: usize,
}

/// A process announces itself, on the connection that carries its heartbeat.
pub async fn register(client: &Client, registration: &Registration) -> Result<(), Error> {
    let Registration { id, host, pid, roles, version } = registration;
    client.execute(sql!("process/register"), &[&id.0, host, pid, roles, version, &release::number()]).await?;
    Ok(())
}

/// A process, or an id it gave up, is over.
pub async fn end(client: &Client, process: ProcessId) -> Result<(), Error> {
    client.execute(sql!("process/end"), &[&process.0]).await?;
    Ok(())
}

/// One heartbeat.
pub async fn beat(
    client: &Client,
    process: ProcessId,
    standing: Standing,
    shard_lease: Duration,
    dead_after: Duration,
) -> Result<News, Error> {
    let Standing { dispatches, has_room, waiting } = standing;
    let waiting = i32::try_from(waiting).unwrap_or(i32::MAX);
    let (lease, dead) = (shard_lease.as_secs_f64(), dead_after.as_secs_f64());
    let told = client.query(sql!("process/beat"), &[&process.0, &dispatches, &has_room, &waiting, &lease, &dead]).await;
    let rows = match told {
        // It was silent for so long that nobody expected it any more, and its functions were dropped.
        Err(error) if release::is_missing(&error) => {
            migrate::restore(client).await?;
            return Ok(News { gone: true, ..News::default() });
        }
        told => told?,
    };
    let mut news = News::default();
    for row in &rows {
        let id = || row.try_get::<_, Uuid>("id");
        match row.try_get("what")? {
            "gone" => news.gone = true,
            "shard" => news.shards.push(row.try_get("shard")?),
            "claim" => news.claim_shards.push(row.try_get("shard")?),
            "waiting" => news.waiting = usize::try_from(row.try_get::<_, i64>("runs")?).unwrap_or(0),
            "cancel" => news.cancel.push(ExecutionId(id()?)),
            "wake" => news.wake.push(ExecutionId(id()?)),
            "dead" => news.dead.push(ProcessId(id()?)),
            other => return Err(Error::Corrupt(format!("a heartbeat answered {other}"))),
        }
    }
    Ok(news)
}

impl Store {
    /// A process says goodbye.
    pub async fn end_process(&self, process: ProcessId) -> Result<(), Error> {
        self.execute(sql!("process/end"), &[&process.0]).await.map(drop)
    }

    /// Declares the processes that were silent for so long dead.
    pub async fn end_silent(&self, after: Duration) -> Result<Vec<ProcessId>, Error> {
        let rows = self.query(sql!("process/end_silent"), &[&after.as_secs_f64()]).await?;
        rows.iter().map(|row| Ok(ProcessId(row.try_get(0)?))).collect()
    }

    /// Declares every other process ended; for whoever alone can reach this database.
    pub async fn end_all_but(&self, process: ProcessId) -> Result<u64, Error> {
        self.execute(sql!("process/end_all_but"), &[&process.0]).await
    }

    /// Forgets processes that ended long ago and hold nothing, and the functions of releases that nobody uses.
    pub async fn forget_processes(&self, engine: &str) -> Result<u64, Error> {
        match self.drop_unused_releases().await {
            Ok(dropped) => {
                for number in dropped {
                    tracing::info!(release = number, "Dropped the functions of a release that no process uses");
                }
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "Failed to drop the functions of releases that no process uses; retried later");
            }
        }
        self.execute(sql!("process/forget"), &[&engine]).await
    }
}
