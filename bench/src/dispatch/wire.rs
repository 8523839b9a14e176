//! How many starts the API takes over the wire, one by one and in bulk. The engine is off: what is
//! measured is accepting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::{BATCH, Scale, one_node};
use crate::measure::served::Service;
use crate::measure::world::World;

pub(super) const CLIENTS: usize = 16;
const SECONDS: u32 = 10;

/// Starts per second: single, bulk.
pub(super) async fn measure(world: &World, scale: Scale) -> Result<(f64, f64)> {
    let mut tenants = Vec::new();
    for _ in 0..CLIENTS {
        tenants.push(world.tenant_in(None, 20, 1, &one_node()).await?);
    }
    world.leave_to_service().await?;
    let service = Arc::new(Service::start(world, &["workflow.engine.enabled=false".to_owned()]).await?);
    let mut rates = Vec::new();
    for bulk in [false, true] {
        let took = Duration::from_secs(scale.seconds(SECONDS).into());
        let (began, mut clients) = (Instant::now(), JoinSet::new());
        for tenant in tenants.clone() {
            let service = Arc::clone(&service);
            clients.spawn(async move {
                let mut started = 0;
                while began.elapsed() < took {
                    started += if bulk {
                        service.enqueue_bulk(tenant, BATCH).await?
                    } else {
                        service.enqueue(tenant).await.map(|_| 1)?
                    };
                }
                anyhow::Ok(started)
            });
        }
        let mut all = 0;
        while let Some(started) = clients.join_next().await {
            all += started.context("a client broke off")??;
        }
        rates.push(all as f64 / began.elapsed().as_secs_f64());
    }
    Arc::into_inner(service).context("a client still holds the service")?.stop().await?;
    Ok((rates[0], rates[1]))
}
