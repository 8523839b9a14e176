//! Changes limits during the whole run, with plain SQL statements as an operator would write them.
//!
//! Invariants
//! - Limits go up and down, to zero and back. No limit stays at zero and nothing stays paused for long, because the
//!   load must run.
//! - At the end every limit has its original value.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context;
use store::connect::Client;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::setup::{Tenant, TenantDefinition};
use crate::random::Random;

/// How long a limit may stay at zero, or a workspace paused, in ms.
const CLOSED: (u64, u64) = (100, 1_500);

/// Changes limits until it is stopped.
pub(super) async fn change(
    client: Client,
    tenants: &[Tenant],
    mut random: Random,
    every: Duration,
    stop: CancellationToken,
) {
    let mut closed: VecDeque<(Instant, Change)> = VecDeque::new();
    while !stop.is_cancelled() {
        tokio::time::sleep(every).await;
        let due = closed.front().is_some_and(|(at, _)| *at <= Instant::now());
        let change = match closed.pop_front_if(|_| due) {
            Some((_, change)) => change,
            None => Change::draw(&tenants[random.below(tenants.len())], &mut random),
        };
        // The statement may fail because it waited too long for a lock that a claim holds. An operator's statement
        // could fail in the same way, so the error is ignored.
        let _late = change.make(&client).await;
        if let Some(opening) = change.opening() {
            let after = Duration::from_millis(random.between(CLOSED.0, CLOSED.1));
            closed.push_back((Instant::now() + after, opening));
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Override(Uuid, Option<i32>),
    Paused(Uuid, bool),
    Concurrency(Uuid, i32),
    KeyConcurrency(Uuid, i32),
    Tier(i32),
}

impl Change {
    fn draw(tenant: &Tenant, random: &mut Random) -> Change {
        let number = |random: &mut Random, bound| i32::try_from(random.below(bound)).unwrap_or_default();
        let one_of = |is: fn(&TenantDefinition) -> bool, random: &mut Random| {
            let all: Vec<Uuid> = tenant.definitions.iter().filter(|it| is(it)).map(|it| it.id).collect();
            (!all.is_empty()).then(|| all[random.below(all.len())])
        };
        let drawn = match random.below(20) {
            0..4 => one_of(|it| it.limited, random).map(|id| Change::Concurrency(id, number(random, 4))),
            4..8 => one_of(|it| it.keyed, random).map(|id| Change::KeyConcurrency(id, number(random, 4))),
            8..10 => Some(Change::Paused(tenant.id, true)),
            10 => Some(Change::Tier(3 + number(random, 3))),
            _ => None,
        };
        // A limit of zero to four, or none: then the limit of the tier applies.
        drawn.unwrap_or_else(|| Change::Override(tenant.id, Some(number(random, 7)).filter(|limit| *limit <= 4)))
    }

    /// The change that reverts this change, if this change stops all executions.
    fn opening(self) -> Option<Change> {
        match self {
            Change::Override(id, Some(0)) => Some(Change::Override(id, Some(3))),
            Change::Paused(id, true) => Some(Change::Paused(id, false)),
            Change::Concurrency(id, 0) => Some(Change::Concurrency(id, 2)),
            Change::KeyConcurrency(id, 0) => Some(Change::KeyConcurrency(id, 2)),
            _ => None,
        }
    }

    async fn make(self, client: &Client) -> Result<u64, tokio_postgres::Error> {
        match self {
            Change::Override(id, limit) => {
                let sql = "UPDATE workspace SET limit_override = $2::int WHERE id = $1::uuid";
                client.execute(sql, &[&id, &limit]).await
            }
            Change::Paused(id, paused) => {
                client.execute("UPDATE workspace SET paused = $2::boolean WHERE id = $1::uuid", &[&id, &paused]).await
            }
            Change::Concurrency(id, limit) => {
                let sql = "UPDATE workflow_definition SET concurrency = $2::int WHERE id = $1::uuid";
                client.execute(sql, &[&id, &limit]).await
            }
            Change::KeyConcurrency(id, limit) => {
                let sql = "UPDATE workflow_definition SET key_concurrency = $2::int WHERE id = $1::uuid";
                client.execute(sql, &[&id, &limit]).await
            }
            Change::Tier(limit) => {
                client.execute("UPDATE tier SET max_running = $1::int WHERE name = 'PRO'", &[&limit]).await
            }
        }
    }
}

/// Restores every limit.
pub(super) async fn restore(client: &Client) -> anyhow::Result<()> {
    client
        .batch_execute(
            "UPDATE tier SET max_running = 5 WHERE name = 'PRO';
             UPDATE workspace SET limit_override = NULL, paused = false WHERE limit_override IS NOT NULL OR paused;
             UPDATE workflow_definition SET concurrency = 2 WHERE concurrency IS NOT NULL;
             UPDATE workflow_definition SET key_concurrency = 2 WHERE key_concurrency <> 1;",
        )
        .await
        .context("put the limits back")
}
