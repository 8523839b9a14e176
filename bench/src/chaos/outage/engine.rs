//! The second act: an engine elsewhere is out of reach under load.
//!
//!     load ──▶ the engine is away (readiness is judged) ──▶ it is back (recovery is judged) ──▶ quiet ──▶ audit
//!
//! Invariants
//! - Each process says that the engine is away for as long as it is, and finds it again by itself.
//! - An outage is no attempt: none is counted, not even one that is forgiven later.
//! - What the engine did is judged by its own log, beside the triggers'.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use store::connect::Client;
use tokio_util::sync::CancellationToken;

use super::remote::{Remote, Seen};
use super::told::{Told, Watch};
use super::{Act, PROCESSES, RECOVERY, Size, TENANTS, Tally, even_limits, quiet, stop, tenths};
use crate::chaos::load::{Burst, Load};
use crate::chaos::mutant::Mutant;
use crate::chaos::setup::{Setup, Stage, Tenant};
use crate::chaos::{Leases, Request, ms};
use crate::random::Random;
use crate::receiver::Policy;
use crate::report::say;
use crate::service::now_us;

/// What the engine says while it is away.
const REASON: &str = "UNAVAILABLE: it is away";

pub(super) async fn act(request: &Request, size: Size, mutant: Option<Mutant>) -> anyhow::Result<Act> {
    say(format!("the engine: away for {} s", size.away.as_secs()));
    // No node is performed, so nobody is called.
    let policy = Policy { seed: request.seed, fast: (0, 0), slow: (0, 0), slow_every: 1, repeat: ms(0) };
    let remote = Remote::new()?;
    let stage = Stage { settings: vec![remote.setting()], ..Stage::new(PROCESSES, Leases::of(request.short), policy) };
    let setup = Setup::start(request, stage).await?;
    let tenants: Arc<[Tenant]> = setup.tenants(TENANTS, &[document()]).await?.into();
    even_limits(&setup).await?;
    let run = Run { setup, remote, size, seed: request.seed, mutant, load: Arc::new(Load::new(0)) };
    let (watch, stop_watching) = (Watch::default(), CancellationToken::new());
    let watching = tokio::spawn(watch.clone().run(Arc::clone(&run.setup.fleet), stop_watching.clone()));
    let outage = run.setup.while_all_live(run.trouble(tenants)).await?;
    quiet(&run.setup.client).await?;
    let told = until_well(&watch, outage.away).await;
    stop_watching.cancel();
    watching.await.context("watching broke off")?;
    let act = run.judged(&outage, &told).await?;
    stop(run.setup, request.keep_logs || (!act.broken.is_empty() && mutant.is_none())).await?;
    Ok(act)
}

fn document() -> Value {
    json!({ "version": 1, "name": "outage", "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } })
}

/// What readiness told, once everybody said that all is well, or should have.
async fn until_well(watch: &Watch, away: (i64, i64)) -> Told {
    let began = Instant::now();
    loop {
        let told = watch.told(PROCESSES, away, REASON);
        if told.well == PROCESSES || began.elapsed() > RECOVERY {
            return told;
        }
        tokio::time::sleep(ms(100)).await;
    }
}

struct Run {
    setup: Setup,
    remote: Remote,
    size: Size,
    seed: u64,
    mutant: Option<Mutant>,
    load: Arc<Load>,
}

/// An outage that is over.
struct Outage {
    /// From when to when, in µs.
    away: (i64, i64),
    /// What waited when the engine came back.
    waited: usize,
}

impl Run {
    /// The load, and beside it an engine that goes away and comes back.
    async fn trouble(&self, tenants: Arc<[Tenant]>) -> anyhow::Result<Outage> {
        let stop = CancellationToken::new();
        let burst = Burst { api: self.setup.api.clone(), tenants, every: self.size.burst_every };
        let loading = tokio::spawn(Arc::clone(&self.load).bursts(burst, Random::new(self.seed ^ 7), stop.clone()));
        tokio::time::sleep(self.size.around).await;
        let from = now_us();
        self.remote.answer(&self.away())?;
        say(format!("the engine is away, accepted {}", self.load.count()));
        tokio::time::sleep(self.size.away).await;
        let (waited, to) = (self.setup.open().await?, now_us());
        self.remote.answer("available")?;
        say(format!("the engine is back, accepted {}, waiting {waited}", self.load.count()));
        tokio::time::sleep(self.size.around).await;
        stop.cancel();
        loading.await.context("the load broke off")?;
        Ok(Outage { away: (from, to), waited })
    }

    /// How the engine answers while it is away, or how the mutant understands it.
    fn away(&self) -> String {
        match self.mutant {
            Some(Mutant::RefusalOnOutage) => format!("refuses {REASON}"),
            _ => format!("unavailable {REASON}"),
        }
    }

    async fn judged(&self, outage: &Outage, told: &Told) -> anyhow::Result<Act> {
        let (from, back) = outage.away;
        let mut tally = Tally::of(&self.setup, &self.setup.client, &self.load, &[back]).await?;
        let Seen { turned_away, accepted, doubled } = self.remote.log()?;
        tally.doubled += i64::try_from(doubled)?;
        let length = Duration::from_micros((back - from).unsigned_abs());
        let broken = tally.broken(
            "engine",
            &[
                ("readiness", told.by < PROCESSES || told.taken_back > 0),
                ("well_again", told.well < PROCESSES || told.well_after_s > RECOVERY.as_secs_f64()),
                // It was really away, and something was really waiting for it.
                ("never_away", turned_away == 0 || outage.waited == 0),
                ("run_elsewhere", accepted < self.load.count()),
            ],
        );
        let figures = json!({
            "engine_away_s": tenths(length.as_secs_f64()),
            "engine_turned_away": turned_away,
            "engine_waiting_at_return": outage.waited,
            "engine_told_by": told.by,
            "engine_told_after_s": tenths(told.after_s),
            "engine_told_otherwise": told.taken_back,
            "engine_well_after_s": tenths(told.well_after_s),
            "engine_drained_s": tenths(drained(&self.setup.client, back).await?),
        });
        Ok(Act { tally, told: figures, broken })
    }
}

/// How long it took from then on until all that waited then had ended, in seconds.
async fn drained(client: &Client, since: i64) -> anyhow::Result<f64> {
    let sql =
        "SELECT coalesce(extract(epoch FROM max(coalesce(completed_at, now()))) - $1::bigint / 1000000.0, 0)::float8
                 FROM workflow_execution WHERE created_at <= to_timestamp($1::bigint / 1000000.0)";
    Ok(client.query_one(sql, &[&since]).await?.get(0))
}
