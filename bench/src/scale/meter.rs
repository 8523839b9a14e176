//! Measures what a piece of work costs the server: time, write-ahead log, processor.

use std::ops::Add;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::measure::cpu;
use crate::measure::stats::round;
use crate::measure::world::World;

/// The cost of a piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    pub(super) took_s: f64,
    pub(super) wal_bytes: f64,
    /// Processor time of the whole server.
    pub(super) server_s: f64,
}

impl Spent {
    pub(super) fn json(&self) -> Value {
        json!({ "took_s": round(self.took_s), "wal_bytes": self.wal_bytes, "server_s": round(self.server_s) })
    }
}

impl Add for Spent {
    type Output = Spent;

    fn add(self, other: Spent) -> Spent {
        Spent {
            took_s: self.took_s + other.took_s,
            wal_bytes: self.wal_bytes + other.wal_bytes,
            server_s: self.server_s + other.server_s,
        }
    }
}

/// A running measurement.
pub(super) struct Meter {
    server: u32,
    began: Instant,
    wal: i64,
    used: Duration,
}

impl Meter {
    /// Starts a measurement right after a checkpoint. So the first change of each old page logs the whole page, as in
    /// production, where a row is deleted long after it was written.
    pub(super) async fn start(world: &World) -> Result<Meter> {
        world.client.batch_execute("CHECKPOINT").await?;
        let server = cpu::postmaster(&world.client).await?;
        let wal = wal_written(&world.client).await?;
        Ok(Meter { server, used: cpu::used_by(server)?, wal, began: Instant::now() })
    }

    pub(super) async fn stop(self, world: &World) -> Result<Spent> {
        let took_s = self.began.elapsed().as_secs_f64();
        let used = cpu::used_by(self.server)?.saturating_sub(self.used);
        let wal = wal_written(&world.client).await? - self.wal;
        Ok(Spent { took_s, wal_bytes: wal as f64, server_s: used.as_secs_f64() })
    }
}

/// How many bytes the server has written to its log since it was created.
pub(super) async fn wal_written(client: &Client) -> Result<i64> {
    let sql = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
}
