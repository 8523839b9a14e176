//! Measures how many starts per second the API accepts over HTTP, one by one and in bulk. The engine is off, so that
//! only accepting is measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use super::{BATCH, Scale, one_node};
use crate::measure::connection::Connection;
use crate::measure::served::Service;
use crate::measure::world::{Tenant, World};

/// Clients that send single starts. Each has a workspace.
pub(super) const CLIENTS: usize = 64;
const BULK_CLIENTS: usize = 16;
const SECONDS: u32 = 10;
/// The promise is broken if fewer single starts per second are accepted.
pub(super) const LEAST_PER_S: f64 = 8_000.0;

/// Starts per second: single, bulk.
pub(super) async fn measure(world: &World, scale: Scale) -> Result<(f64, f64)> {
    let mut tenants = Vec::new();
    for _ in 0..CLIENTS {
        tenants.push(world.tenant_in(None, 20, 1, &one_node()).await?);
    }
    world.leave_to_service().await?;
    let service = Arc::new(Service::start(world, &["workflow.engine.enabled=false".to_owned()]).await?);
    let took = Duration::from_secs(scale.seconds(SECONDS).into());
    let mut clients = JoinSet::new();
    let began = Instant::now();
    for tenant in &tenants {
        clients.spawn(send_one_by_one(service.address().to_owned(), service.start_request(*tenant), began + took));
    }
    let single = rate(clients, began).await?;
    let mut clients = JoinSet::new();
    let began = Instant::now();
    for client in 0..BULK_CLIENTS {
        clients.spawn(send_in_bulk(Arc::clone(&service), tenants.clone(), client, began + took));
    }
    let bulk = rate(clients, began).await?;
    Arc::into_inner(service).context("a client still holds the service")?.stop().await?;
    Ok((single, bulk))
}

async fn send_one_by_one(address: String, request: Vec<u8>, until: Instant) -> Result<usize> {
    let (mut connection, mut started) = (Connection::open(&address).await?, 0);
    while Instant::now() < until {
        let status = connection.send(&request).await?;
        ensure!(status == 202, "a start was answered {status}");
        started += 1;
    }
    Ok(started)
}

async fn send_in_bulk(service: Arc<Service>, tenants: Vec<Tenant>, first: usize, until: Instant) -> Result<usize> {
    let mut started = 0;
    for tenant in tenants.iter().cycle().skip(first * tenants.len() / BULK_CLIENTS) {
        if Instant::now() >= until {
            break;
        }
        started += service.enqueue_bulk(*tenant, BATCH).await?;
    }
    Ok(started)
}

async fn rate(mut clients: JoinSet<Result<usize>>, began: Instant) -> Result<f64> {
    let mut all = 0;
    while let Some(started) = clients.join_next().await {
        all += started.context("a client stopped early")??;
    }
    Ok(all as f64 / began.elapsed().as_secs_f64())
}
