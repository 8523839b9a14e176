//! Measures starts per second: the dispatcher, which also records each start in PostgreSQL, compared with a client that
//! only sends the same requests. No worker runs, so that only starts are measured.
//!
//! Invariants
//! - In both arms the items are in the queue before the measurement. Enqueueing is measured elsewhere (`dispatch`).
//! - Apart from ids, both arms send identical requests to the server. This is verified.
//! - The service's time runs from its first claim to the last item marked as dispatched, by the database's clock. The
//!   bare client's time runs from its first request to its last answer.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use kernel::definition::Definition;
use kernel::ids::ExecutionId;
use kernel::queue::StartOutcome;
use serde_json::{Map, Value, json};
use store::run::attempt::StartDetails;
use temporal::WorkflowStarter;
use uuid::Uuid;

use super::AT_ONCE;
use super::end_to_end::notify_dispatchers;
use super::history::{HistorySize, history_size};
use super::server::TemporalServer;
use super::site::Site;
use crate::cluster::Cluster;
use crate::measure::cpu::used_by_ms;
use crate::measure::served::Service;
use crate::measure::stats::{median, round};
use crate::measure::world::{Backlog, READY, Tenant, World};
use crate::report::say;

/// Starts of one arm in one round.
pub(super) const ITEMS: usize = 1_000;
/// Pairs of arms.
const ROUNDS: usize = 5;
/// How many workflows each arm starts before the measurement.
const WARM_UP: usize = 64;
/// No slot is freed during the measurement, so each workspace has a slot for all of its items.
const TENANTS: usize = 20;

/// One arm of one round.
#[derive(Clone, Copy, Debug)]
struct Arm {
    per_s: f64,
    server_ms: f64,
    /// The processor time of the service itself.
    own_ms: f64,
}

pub(super) struct Starts {
    bare: Vec<Arm>,
    forebay: Vec<Arm>,
}

impl Starts {
    /// Reports the figures. Returns the ratio.
    pub(super) fn add_to(&self, figures: &mut Map<String, Value>) -> f64 {
        let of = |arms: &[Arm], what: fn(&Arm) -> f64| median(&arms.iter().map(what).collect::<Vec<_>>());
        let ratios: Vec<f64> =
            self.bare.iter().zip(&self.forebay).map(|(bare, ours)| ours.per_s / bare.per_s).collect();
        let (bare, forebay) = (of(&self.bare, |arm| arm.per_s), of(&self.forebay, |arm| arm.per_s));
        let (server_bare, server) = (of(&self.bare, |arm| arm.server_ms), of(&self.forebay, |arm| arm.server_ms));
        let (ratio, own) = (median(&ratios), of(&self.forebay, |arm| arm.own_ms));
        say(format!("starts: {forebay:.0}/s, a bare client {bare:.0}/s, ratio {ratio:.2}"));
        say(format!(
            "a start costs the server {server:.2} ms ({server_bare:.2} bare) and the service {own:.2} ms of a core"
        ));
        let all = [
            ("bare_starts_per_s", json!(bare.round())),
            ("forebay_starts_per_s", json!(forebay.round())),
            ("temporal_ratio", json!(round(ratio))),
            ("temporal_ratios", json!(ratios.iter().copied().map(round).collect::<Vec<_>>())),
            ("server_cpu_ms_per_start", json!(round(server))),
            ("server_cpu_ms_per_bare_start", json!(round(server_bare))),
            ("forebay_cpu_ms_per_start", json!(round(own))),
        ];
        figures.extend(all.into_iter().map(|(name, value)| (name.to_owned(), value)));
        ratio
    }
}

pub(super) async fn measure(cluster: &Cluster, items: usize) -> Result<Starts> {
    let (mut bare, mut forebay) = (Vec::new(), Vec::new());
    for at in 0..ROUNDS {
        let server = TemporalServer::start().await?;
        let round = Round::new(cluster, at, items).await?;
        let (one, other) = if at % 2 == 0 {
            let one = round.bare(&server).await?;
            (one, round.forebay(&server).await?)
        } else {
            let other = round.forebay(&server).await?;
            (round.bare(&server).await?, other)
        };
        ensure!(one.1 == other.1, "the two arms sent the server different requests: {:?} and {:?}", one.1, other.1);
        server.stop().await?;
        say(format!("round {}: bare {:.0}/s, forebay {:.0}/s", at + 1, one.0.per_s, other.0.per_s));
        bare.push(one.0);
        forebay.push(other.0);
    }
    Ok(Starts { bare, forebay })
}

/// A separate database, with workspaces for both arms.
struct Round {
    world: World,
    warm: Tenant,
    tenants: Vec<Tenant>,
    briefs: Vec<StartDetails>,
    version: Definition,
    items: usize,
}

impl Round {
    async fn new(cluster: &Cluster, at: usize, items: usize) -> Result<Round> {
        let world = World::create(cluster, &format!("starts{at}")).await?;
        let document = Site::start().await?.graph("30s");
        let limit = i32::try_from(items)?;
        let warm = world.tenant_in(None, limit, 1, &document).await?;
        let mut tenants = Vec::new();
        for _ in 0..TENANTS {
            tenants.push(world.tenant_in(None, limit, 1, &document).await?);
        }
        world.leave_to_service().await?;
        // The bare client reads the content of a start once. The service reads it for each start.
        let mut briefs = Vec::new();
        for tenant in &tenants {
            briefs.push(brief(&world, *tenant).await?);
        }
        let (definition, _) =
            kernel::definition::parse::check(&document).map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
        Ok(Round { world, warm, tenants, briefs, version: definition, items })
    }

    async fn bare(&self, server: &TemporalServer) -> Result<(Arm, HistorySize)> {
        let client = WorkflowStarter::connect(&server.settings()).await.map_err(anyhow::Error::msg)?;
        self.send(&client, WARM_UP).await?;
        let (cpu, began) = (server.cpu_ms()?, Instant::now());
        let last = self.send(&client, self.items).await?;
        let took = began.elapsed().as_secs_f64();
        let server_ms = (server.cpu_ms()? - cpu) / self.items as f64;
        let size = history_size(&server.client().await?, &format!("execution-{last}")).await?;
        Ok((Arm { per_s: self.items as f64 / took, server_ms, own_ms: 0.0 }, size))
    }

    /// Sends this many starts, with the service's parallelism. Returns the last.
    async fn send(&self, client: &WorkflowStarter, count: usize) -> Result<ExecutionId> {
        let ids: Vec<ExecutionId> = (0..count).map(|_| ExecutionId(store::new_id())).collect();
        let starts = ids.iter().enumerate().map(|(at, id)| async move {
            let answer = client.start(*id, &self.briefs[at % self.briefs.len()], &self.version).await;
            ensure!(answer == StartOutcome::Started, "a bare start was answered {answer:?}");
            Ok(())
        });
        stream::iter(starts).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok(ids[count - 1])
    }

    async fn forebay(&self, server: &TemporalServer) -> Result<(Arm, HistorySize)> {
        let service = Service::start_as("api,dispatcher", &self.world, &server.service_settings()).await?;
        let pid = service.pid()?;
        self.dispatch(&[self.warm], WARM_UP).await?;
        let (cpu, own) = (server.cpu_ms()?, used_by_ms(pid)?);
        let (took, last) = self.dispatch(&self.tenants, self.items / TENANTS).await?;
        let items = (self.items / TENANTS * TENANTS) as f64;
        let arm = Arm {
            per_s: items / took,
            server_ms: (server.cpu_ms()? - cpu) / items,
            own_ms: (used_by_ms(pid)? - own) / items,
        };
        service.stop().await?;
        Ok((arm, history_size(&server.client().await?, &format!("execution-{last}")).await?))
    }

    /// Lets the service start this many of each tenant. Returns how long it took, and the id of one of the executions.
    async fn dispatch(&self, tenants: &[Tenant], each: usize) -> Result<(f64, Uuid)> {
        let waiting = i64::try_from(each)?;
        self.world.load(tenants, Backlog { waiting, ..READY }).await?;
        self.world.settle().await?;
        notify_dispatchers(&self.world, tenants).await?;
        let sql =
            "SELECT count(*), extract(epoch FROM max(dispatched_at) - min(claimed_at))::float8, max(id::text)::uuid
                     FROM execution_queue WHERE workspace_id = ANY ($1) AND status = 'DISPATCHED'";
        let workspaces: Vec<Uuid> = tenants.iter().map(|tenant| tenant.workspace.0).collect();
        for _ in 0..3_000 {
            let row = self.world.client.query_one(sql, &[&workspaces]).await?;
            if row.try_get::<_, i64>(0)? == waiting * i64::try_from(tenants.len())? {
                return Ok((row.try_get(1)?, row.try_get(2)?));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("some items were not dispatched")
    }
}

/// The start content of a tenant's executions, as the service builds it.
async fn brief(world: &World, tenant: Tenant) -> Result<StartDetails> {
    let sql = "SELECT published_version FROM workflow_definition WHERE id = $1";
    let version = world.client.query_one(sql, &[&tenant.definition.0]).await?.try_get(0)?;
    Ok(StartDetails {
        workspace: tenant.workspace,
        definition: tenant.definition,
        version: kernel::ids::VersionId(version),
        semantics: 1,
        priority: kernel::queue::Priority::default(),
        weight: 1,
    })
}
