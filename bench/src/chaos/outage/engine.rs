//! The second act: a remote engine is unreachable under load.
//!
//!     load ──▶ the engine is away (readiness is judged) ──▶ it is back (recovery is judged) ──▶ quiet ──▶ audit
//!
//! Invariants
//! - Each process reports that the engine is unavailable, and uses the engine again without a restart when it is back.
//! - An outage costs no attempt: no attempt is counted, not even temporarily.
//! - The engine's own log shows which starts it accepted, as evidence in addition to the triggers' log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use store::connect::Client;
use tokio_util::sync::CancellationToken;

use super::readiness::{OutageReports, ReadinessWatch};
use super::remote::{EngineLog, Remote};
use super::{
    Act, PROCESSES, RECOVERY, Size, TENANTS, Tally, even_limits, round_to_tenths, stop_setup, wait_until_ended,
};
use crate::chaos::load::{Burst, Load};
use crate::chaos::mutant::Mutant;
use crate::chaos::setup::{Setup, Stage, Tenant};
use crate::chaos::{ChaosOptions, Leases, ms};
use crate::random::Random;
use crate::receiver::Policy;
use crate::report::say;
use crate::service::now_us;

/// The engine's error while it is unavailable.
const REASON: &str = "UNAVAILABLE: it is away";

pub(super) async fn act(options: &ChaosOptions, size: Size, mutant: Option<Mutant>) -> anyhow::Result<Act> {
    say(format!("the engine: away for {} s", size.away.as_secs()));
    // No node is performed, so the receiver gets no calls.
    let policy = Policy { seed: options.seed, fast: (0, 0), slow: (0, 0), slow_every: 1, repeat: ms(0) };
    let remote = Remote::new()?;
    let stage = Stage { settings: vec![remote.setting()], ..Stage::new(PROCESSES, Leases::of(options.short), policy) };
    let setup = Setup::start(options, stage).await?;
    let tenants: Arc<[Tenant]> = setup.tenants(TENANTS, &[document()]).await?.into();
    even_limits(&setup).await?;
    let run = Run { setup, remote, size, seed: options.seed, mutant, load: Arc::new(Load::new(0)) };
    let (watch, stop_watching) = (ReadinessWatch::default(), CancellationToken::new());
    let watching = tokio::spawn(watch.clone().run(Arc::clone(&run.setup.fleet), stop_watching.clone()));
    let outage = run.setup.while_all_live(run.trouble(tenants)).await?;
    wait_until_ended(&run.setup.client).await?;
    let reports = until_well(&watch, outage.away).await;
    stop_watching.cancel();
    watching.await.context("watching stopped early")?;
    let act = run.judged(&outage, &reports).await?;
    stop_setup(run.setup, options.keep_logs || (!act.broken.is_empty() && mutant.is_none())).await?;
    Ok(act)
}

fn document() -> Value {
    json!({ "version": 1, "name": "outage", "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } })
}

/// Returns what readiness reported. Waits until every process reports that the engine is available, or until a time
/// limit.
async fn until_well(watch: &ReadinessWatch, away: (i64, i64)) -> OutageReports {
    let began = Instant::now();
    loop {
        let reports = watch.reports(PROCESSES, away, REASON);
        if reports.well == PROCESSES || began.elapsed() > RECOVERY {
            return reports;
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
    /// How many items waited when the engine came back.
    waited: usize,
}

impl Run {
    /// Runs the load, with an engine that becomes unavailable and comes back.
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
        loading.await.context("the load stopped early")?;
        Ok(Outage { away: (from, to), waited })
    }

    /// The engine's answer mode while it is unavailable. With a mutant, the mode that has the mutant's effect.
    fn away(&self) -> String {
        match self.mutant {
            Some(Mutant::RefusalOnOutage) => format!("refuses {REASON}"),
            _ => format!("unavailable {REASON}"),
        }
    }

    async fn judged(&self, outage: &Outage, reports: &OutageReports) -> anyhow::Result<Act> {
        let (from, back) = outage.away;
        let mut tally = Tally::of(&self.setup, &self.setup.client, &self.load, &[back]).await?;
        let EngineLog { turned_away, accepted, doubled } = self.remote.log()?;
        tally.doubled += i64::try_from(doubled)?;
        let length = Duration::from_micros((back - from).unsigned_abs());
        let broken = tally.broken(
            "engine",
            &[
                ("readiness", reports.by < PROCESSES || reports.taken_back > 0),
                ("well_again", reports.well < PROCESSES || reports.well_after_s > RECOVERY.as_secs_f64()),
                // The engine was really unavailable, and items really waited for it.
                ("never_away", turned_away == 0 || outage.waited == 0),
                ("run_elsewhere", accepted < self.load.count()),
            ],
        );
        let figures = json!({
            "engine_away_s": round_to_tenths(length.as_secs_f64()),
            "engine_turned_away": turned_away,
            "engine_waiting_at_return": outage.waited,
            "engine_reported_by": reports.by,
            "engine_reported_after_s": round_to_tenths(reports.after_s),
            "engine_reported_otherwise": reports.taken_back,
            "engine_well_after_s": round_to_tenths(reports.well_after_s),
            "engine_drained_s": round_to_tenths(drained(&self.setup.client, back).await?),
        });
        Ok(Act { tally, figures, broken })
    }
}

/// The time from `since` until every execution that waited at that time had ended, in seconds.
async fn drained(client: &Client, since: i64) -> anyhow::Result<f64> {
    let sql =
        "SELECT coalesce(extract(epoch FROM max(coalesce(completed_at, now()))) - $1::bigint / 1000000.0, 0)::float8
                 FROM workflow_execution WHERE created_at <= to_timestamp($1::bigint / 1000000.0)";
    Ok(client.query_one(sql, &[&since]).await?.get(0))
}
