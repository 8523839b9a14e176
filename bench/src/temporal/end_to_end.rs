//! Measures a graph of ten calls from start to end, in three arms (variants): in the service with activities, in the
//! service with local activities, and in a handwritten workflow with activities.
//!
//! Invariants
//! - Every arm has the same number of runs in progress: in the service by its limits, in the handwritten arm by its
//!   starter.
//! - Every arm records in PostgreSQL what began and what each call returned, with flushed commits.
//! - A run ends when its end is recorded. No arm waits until Temporal has closed the workflow.
//! - Only one arm has workers at a time.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use temporalio_client::Client;
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use uuid::Uuid;

use super::AT_ONCE;
use super::handwritten::Handwritten;
use super::history::events;
use super::server::TemporalServer;
use super::site::{NODES, Site};
use crate::cluster::Cluster;
use crate::measure::served::Service;
use crate::measure::stats::{median, round};
use crate::measure::world::{Backlog, READY, Tenant, World};
use crate::report::say;

/// Runs of one arm in one round.
pub(super) const ITEMS: usize = 160;
const ROUNDS: usize = 3;
const WARM_UP: usize = 16;
const TENANTS: usize = 4;
/// In the arm with local activities, a call with at most this time limit is a local activity.
const SHORT_MS: u64 = 1_000;

/// One arm of one round.
#[derive(Clone, Copy, Debug)]
struct Arm {
    per_s: f64,
    server_ms: f64,
    events: usize,
}

/// The program that runs the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Handwritten,
    Activities,
    Local,
}

const ALL: [Who; 3] = [Who::Handwritten, Who::Activities, Who::Local];

pub(super) struct EndToEnd(Vec<[Arm; 3]>);

impl EndToEnd {
    /// Reports the figures. Returns how Forebay compares with the handwritten workflow: with calls as activities, and
    /// with calls as local activities.
    pub(super) fn add_to(&self, figures: &mut Map<String, Value>) -> (f64, f64) {
        let of = |who: Who, what: fn(&Arm) -> f64| {
            median(&self.0.iter().map(|round| what(&round[who as usize])).collect::<Vec<_>>())
        };
        let ratio = |who: Who| {
            let pairs = self.0.iter().map(|round| round[who as usize].per_s / round[Who::Handwritten as usize].per_s);
            median(&pairs.collect::<Vec<_>>())
        };
        for (who, name) in [
            (Who::Handwritten, "by hand"),
            (Who::Activities, "forebay, calls as activities"),
            (Who::Local, "forebay, calls as local activities"),
        ] {
            say(format!(
                "{name}: {:.1} executions/s ({:.2}), {:.1} ms of server CPU each, {:.1} events per node",
                of(who, |arm| arm.per_s),
                ratio(who),
                of(who, |arm| arm.server_ms),
                of(who, |arm| arm.events as f64) / NODES as f64,
            ));
        }
        for (who, prefix) in [(Who::Handwritten, "handwritten"), (Who::Activities, "forebay"), (Who::Local, "local")] {
            figures.insert(format!("{prefix}_e2e_per_s"), json!(round(of(who, |arm| arm.per_s))));
            figures.insert(format!("{prefix}_server_cpu_ms_per_execution"), json!(round(of(who, |arm| arm.server_ms))));
        }
        let (ten, light) = (ratio(Who::Activities), ratio(Who::Local));
        figures.insert("ten_ratio".to_owned(), json!(round(ten)));
        figures.insert("light_ratio".to_owned(), json!(round(light)));
        let per_node = |who| json!(round(of(who, |arm| arm.events as f64) / NODES as f64));
        figures.insert("history_events_per_node".to_owned(), per_node(Who::Activities));
        figures.insert("local_history_events_per_node".to_owned(), per_node(Who::Local));
        figures.insert("handwritten_history_events_per_node".to_owned(), per_node(Who::Handwritten));
        (ten, light)
    }
}

pub(super) async fn measure(cluster: &Cluster, items: usize) -> Result<EndToEnd> {
    let site = Site::start().await?;
    let mut rounds = Vec::new();
    for at in 0..ROUNDS {
        let server = TemporalServer::start().await?;
        let mut arms = [None; 3];
        for turn in 0..ALL.len() {
            let who = ALL[(at + turn) % ALL.len()];
            let world = World::create(cluster, &format!("e2e{at}_{turn}")).await?;
            let arm = match who {
                Who::Handwritten => by_hand(&server, site, &world, items).await,
                Who::Activities | Who::Local => by_service(&server, site, &world, items, who == Who::Local).await,
            };
            arms[who as usize] = Some(arm.with_context(|| format!("{who:?}"))?);
        }
        server.stop().await?;
        let [Some(by_hand), Some(activities), Some(local)] = arms else { bail!("an arm was left out") };
        say(format!(
            "round {}: by hand {:.1}/s, forebay {:.1}/s, local {:.1}/s",
            at + 1,
            by_hand.per_s,
            activities.per_s,
            local.per_s
        ));
        rounds.push([by_hand, activities, local]);
    }
    Ok(EndToEnd(rounds))
}

async fn by_hand(server: &TemporalServer, site: Site, world: &World, items: usize) -> Result<Arm> {
    let handwritten = Handwritten::start(server, world, site.url("/ok")).await?;
    handwritten.run(WARM_UP).await?;
    let cpu = server.cpu_ms()?;
    let (took, last) = handwritten.run(items).await?;
    let server_ms = (server.cpu_ms()? - cpu) / items as f64;
    let events = wait_until_closed(&server.client().await?, &last).await?.len();
    handwritten.stop().await?;
    Ok(Arm { per_s: items as f64 / took.as_secs_f64(), server_ms, events })
}

async fn by_service(server: &TemporalServer, site: Site, world: &World, items: usize, local: bool) -> Result<Arm> {
    let document = site.graph("1s");
    let limit = i32::try_from(AT_ONCE / TENANTS)?;
    let mut tenants = Vec::new();
    for _ in 0..TENANTS {
        tenants.push(world.tenant_in(None, limit, 1, &document).await?);
    }
    world.leave_to_service().await?;
    let below = format!("engine.temporal.local_activity_below_ms={}", if local { SHORT_MS } else { 0 });
    let settings = [server.service_settings(), vec![site.allowed(), below]].concat();
    let service = Service::start(world, &settings).await?;
    run(world, &tenants, WARM_UP / TENANTS).await?;
    let cpu = server.cpu_ms()?;
    let took = run(world, &tenants, items / TENANTS).await?;
    let items = (items / TENANTS * TENANTS) as f64;
    let server_ms = (server.cpu_ms()? - cpu) / items;
    let sql = "SELECT id FROM workflow_execution ORDER BY completed_at DESC LIMIT 1";
    let last: Uuid = world.client.query_one(sql, &[]).await?.try_get(0)?;
    let events = wait_until_closed(&server.client().await?, &format!("execution-{last}")).await?.len();
    service.stop().await?;
    Ok(Arm { per_s: items / took, server_ms, events })
}

/// Runs this many of each tenant. Returns how long that took, from the notification to the last end.
async fn run(world: &World, tenants: &[Tenant], each: usize) -> Result<f64> {
    world.load(tenants, Backlog { waiting: i64::try_from(each)?, ..READY }).await?;
    let began: jiff::Timestamp = world.client.query_one("SELECT clock_timestamp()", &[]).await?.try_get(0)?;
    notify_dispatchers(world, tenants).await?;
    all_ended(world, tenants, each).await?;
    let sql = "SELECT extract(epoch FROM max(completed_at) - $1)::float8 FROM workflow_execution";
    Ok(world.client.query_one(sql, &[&began]).await?.try_get(0)?)
}

/// Sends notifications about tenants with new items, as the service's API processes do.
pub(super) async fn notify_dispatchers(world: &World, tenants: &[Tenant]) -> Result<()> {
    let payload = tenants.iter().map(|tenant| tenant.workspace.to_string()).collect::<Vec<_>>().join(",");
    world.client.execute("SELECT pg_notify('forebay_notification', $1)", &[&payload]).await?;
    Ok(())
}

/// Waits until no item of these tenants waits or runs. All of them must have completed.
pub(super) async fn all_ended(world: &World, tenants: &[Tenant], each: usize) -> Result<()> {
    let workspaces: Vec<Uuid> = tenants.iter().map(|tenant| tenant.workspace.0).collect();
    let sql = "SELECT count(*) FILTER (WHERE status NOT IN ('PENDING', 'RUNNING')),
                      count(*) FILTER (WHERE status NOT IN ('PENDING', 'RUNNING', 'COMPLETED')), count(*)
                 FROM workflow_execution WHERE workspace_id = ANY ($1)";
    for _ in 0..12_000 {
        let row = world.client.query_one(sql, &[&workspaces]).await?;
        let (ended, badly, all) = (row.try_get::<_, i64>(0)?, row.try_get::<_, i64>(1)?, row.try_get::<_, i64>(2)?);
        if badly > 0 {
            bail!("{badly} of {all} executions did not complete");
        }
        if ended == all && all >= i64::try_from(each)? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("some executions did not end")
}

/// Waits until a workflow has closed, which is soon after its last activity, and returns its events.
pub(super) async fn wait_until_closed(client: &Client, workflow: &str) -> Result<Vec<HistoryEvent>> {
    for _ in 0..250 {
        let events = events(client, workflow).await?;
        if events.last().is_some_and(|last| last.event_type() == EventType::WorkflowExecutionCompleted) {
            return Ok(events);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("{workflow} did not close")
}
