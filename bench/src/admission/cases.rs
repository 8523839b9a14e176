//! The backlogs beside which a claim is measured.

use anyhow::Result;
use serde_json::json;

use super::claims::Probe;
use super::{Scale, log_document};
use crate::measure::world::{Backlog, READY, World};

/// A backlog, by its shape.
#[derive(Clone, Copy, Debug)]
pub(super) enum Case {
    /// Nothing else waits.
    Empty,
    /// One full workspace of the same shard, with this many items waiting.
    Waiting(i64),
    /// This many full workspaces of the same shard, with ten items waiting in each.
    Full(i64),
    /// This many items in the measured workspace, delayed until tomorrow.
    Delayed(i64),
    /// This many items of the measured workspace, all blocked by one key that is in use.
    Key(i64),
    /// This many items of the measured workspace, spread over ten thousand keys that are all in use.
    Keys(i64),
    /// This many items of a full neighbor that are already due and still have to be promoted.
    Due(i64),
    /// This many ready items in the measured workspace, of a definition that is about to be paused.
    Pausing(i64),
}

/// The cases that do not change, in the order of the table.
pub(super) fn standing(scale: Scale) -> Vec<(&'static str, Case)> {
    let million = scale.million();
    vec![
        ("empty", Case::Empty),
        ("waiting_100", Case::Waiting(100)),
        ("waiting_10k", Case::Waiting(million / 100)),
        ("waiting_1m", Case::Waiting(million)),
        ("full_1", Case::Full(1)),
        ("full_1k", Case::Full(million / 1_000)),
        ("full_10k", Case::Full(million / 100)),
        ("delayed_1m", Case::Delayed(million)),
        ("key_1m", Case::Key(million)),
        ("keys_10k_1m", Case::Keys(million)),
    ]
}

impl Case {
    /// Builds the case in an empty database.
    pub(super) async fn build(self, name: &'static str, world: World) -> Result<Probe> {
        let probe = Probe::new(name, world).await?;
        let (world, mut measured) = (&probe.world, probe.tenants[0]);
        match self {
            Case::Empty => {}
            Case::Waiting(count) => {
                let full = world.tenant(5, &log_document()).await?;
                world.load(&[full], Backlog { running: 5, waiting: count, ..READY }).await?;
            }
            Case::Full(count) => {
                let full = world.tenants(count, &log_document()).await?;
                world.load(&full, Backlog { running: 1, waiting: 10, ..READY }).await?;
            }
            Case::Delayed(count) => {
                world.load(&[measured], Backlog { waiting: count, stage: 1, due_in_s: 86_400.0, ..READY }).await?;
            }
            Case::Key(count) => {
                measured.definition = world.definition(measured.workspace, &keyed()).await?;
                world.load(&[measured], Backlog { running: 1, waiting: count, stage: 2, key: "'k'", ..READY }).await?;
            }
            Case::Keys(count) => {
                // Each key is in use by an item that waits for its paused definition.
                measured.definition = world.definition(measured.workspace, &keyed()).await?;
                let keys = (count / 100).max(1);
                let first = Backlog { waiting: keys, stage: 3, key: "'k' || n", ..READY };
                world.load(&[measured], first).await?;
                let key = format!("'k' || 1 + n % {keys}");
                world.load(&[measured], Backlog { waiting: count, stage: 2, key: &key, ..READY }).await?;
                super::moves::pause(world, measured.definition).await?;
            }
            Case::Due(count) => {
                let full = world.tenant(5, &log_document()).await?;
                let due = Backlog { running: 5, waiting: count, stage: 1, due_in_s: -1.0, ..READY };
                world.load(&[full], due).await?;
            }
            Case::Pausing(count) => {
                measured.definition = world.definition(measured.workspace, &log_document()).await?;
                world.load(&[measured], Backlog { waiting: count, ..READY }).await?;
            }
        }
        world.settle().await?;
        Ok(probe)
    }
}

/// A definition in which each key may run once at a time.
fn keyed() -> serde_json::Value {
    let mut document = log_document();
    document["key_concurrency"] = json!(1);
    document
}
