//! Many executions that end while one snapshot is open, as during a `pg_dump`: their index entries stay.
//!
//! Invariants
//! - The executions are claimed and ended as in the service, workspace by workspace up to its limit.
//!
//! Not here: the measured claims (`claims`).

use anyhow::{Result, ensure};
use store::connect::Target;
use tokio_postgres::Client;

use super::claims::Probe;
use crate::measure::world::World;

/// How many items of each workspace one pass runs: its limit.
const EACH: i32 = 5;

/// A session with a snapshot of this database. The snapshot is open as long as the session is.
pub(super) async fn open(world: &World) -> Result<Client> {
    let client = Target::new(&world.url)?.connect().await?;
    client
        .batch_execute(
            "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ;
             SELECT count(*) FROM forebay.workspace",
        )
        .await?;
    Ok(client)
}

/// Runs and ends this many executions.
pub(super) async fn end_many(probe: &Probe, count: i64) -> Result<()> {
    let mut ended = 0;
    while ended < count {
        let pass = probe.pass(EACH).await?;
        ensure!(pass > 0, "nothing was claimed");
        ended += i64::try_from(pass)?;
    }
    Ok(())
}
