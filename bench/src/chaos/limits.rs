//! Limits that change all the time, by plain statements as any operator would write them.
//!
//! Invariants
//! - Up and down, to nothing and back; at the end everything is as it was.

use std::time::Duration;

use anyhow::Context;
use store::connect::Client;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::setup::Tenant;
use crate::random::Random;

/// Changes limits until told to stop.
pub(super) async fn change(
    client: Client,
    tenants: &[Tenant],
    mut random: Random,
    every: Duration,
    stop: CancellationToken,
) {
    let mut changes = 0u64;
    while !stop.is_cancelled() {
        tokio::time::sleep(every).await;
        let tenant = &tenants[random.below(tenants.len())];
        let done = match random.below(10) {
            0 => definition(&client, tenant, &mut random).await,
            1 => key(&client, tenant, &mut random).await,
            2 if changes.is_multiple_of(7) => tier(&client, &mut random).await,
            2 => paused(&client, tenant, &mut random).await,
            _ => workspace(&client, tenant, &mut random).await,
        };
        // A statement that waited too long for a claim gives up, as an operator's would.
        changes += done.unwrap_or(0);
    }
}

type Done = Result<u64, tokio_postgres::Error>;

async fn workspace(client: &Client, tenant: &Tenant, random: &mut Random) -> Done {
    let limit = i32::try_from(random.below(7)).ok().filter(|limit| *limit <= 4);
    client.execute("UPDATE workspace SET limit_override = $2::int WHERE id = $1::uuid", &[&tenant.id, &limit]).await
}

async fn paused(client: &Client, tenant: &Tenant, random: &mut Random) -> Done {
    let paused = random.one_in(2);
    client.execute("UPDATE workspace SET paused = $2::boolean WHERE id = $1::uuid", &[&tenant.id, &paused]).await
}

async fn definition(client: &Client, tenant: &Tenant, random: &mut Random) -> Done {
    let Some(id) = pick(tenant, random, |definition| definition.limited) else { return Ok(0) };
    let limit = i32::try_from(random.below(4)).unwrap_or_default();
    client.execute("UPDATE workflow_definition SET concurrency = $2::int WHERE id = $1::uuid", &[&id, &limit]).await
}

async fn key(client: &Client, tenant: &Tenant, random: &mut Random) -> Done {
    let Some(id) = pick(tenant, random, |definition| definition.keyed) else { return Ok(0) };
    let limit = i32::try_from(random.below(4)).unwrap_or_default();
    client.execute("UPDATE workflow_definition SET key_concurrency = $2::int WHERE id = $1::uuid", &[&id, &limit]).await
}

async fn tier(client: &Client, random: &mut Random) -> Done {
    let limit = 3 + i32::try_from(random.below(3)).unwrap_or_default();
    client.execute("UPDATE tier SET max_running = $1::int WHERE name = 'PRO'", &[&limit]).await
}

fn pick(tenant: &Tenant, random: &mut Random, is: impl Fn(&super::setup::Definition) -> bool) -> Option<Uuid> {
    let all: Vec<Uuid> = tenant.definitions.iter().filter(|definition| is(definition)).map(|it| it.id).collect();
    (!all.is_empty()).then(|| all[random.below(all.len())])
}

/// Puts every limit back.
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
