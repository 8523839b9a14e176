//! The second act, under load: the server is killed and restarted with its database file, and then is unavailable for a
//! long time.
//!
//! Invariants
//! - Each dispatcher reports that the engine is unavailable, and uses the engine again without a restart when it is
//!   back.
//! - No process of the service is restarted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::server::TemporalServer;
use super::{Act, DISPATCHERS, Size, Stand};
use crate::chaos::outage::readiness::{OutageReports, ReadinessWatch};
use crate::chaos::outage::{longest_recovery, round_to_tenths};
use crate::chaos::{ChaosOptions, ms};
use crate::random::Random;
use crate::report::say;
use crate::service::now_us;

/// After an outage an execution must end within this time.
const RECOVERY: Duration = Duration::from_secs(30);
/// The load before the long outage, and after it.
const AROUND: Duration = Duration::from_secs(3);

pub(super) async fn act(options: &ChaosOptions, size: Size) -> anyhow::Result<Act> {
    say(format!("away: the server is killed {} times, then away for {} s", size.restarts, size.away.as_secs()));
    let server = TemporalServer::start().await?;
    let port = server.port;
    let stand = Stand::start(options, size, server, port).await?;
    let (watch, stop_watching) = (ReadinessWatch::default(), CancellationToken::new());
    let watching = tokio::spawn(watch.clone().run(Arc::clone(&stand.setup.fleet), stop_watching.clone()));
    let outages = stand.setup.while_all_live(trouble(&stand)).await?;
    let tally = stand.tally().await?;
    let reports = until_well(&watch, outages.away).await;
    stop_watching.cancel();
    watching.await.context("watching stopped early")?;
    let recovered_s = longest_recovery(&stand.setup.client, &outages.ends).await?;
    let broken = tally.broken(
        "away",
        &[
            ("readiness", reports.by < DISPATCHERS || reports.taken_back > 0),
            ("well_again", reports.well < DISPATCHERS || reports.well_after_s > RECOVERY.as_secs_f64()),
            ("recovery", recovered_s > RECOVERY.as_secs_f64()),
            // Items really waited for the server.
            ("never_away", outages.waited == 0),
        ],
    );
    let figures = json!({
        "outages": outages.ends.len(),
        "away_s": round_to_tenths(size.away.as_secs_f64()),
        "waiting_at_return": outages.waited,
        "reported_by": reports.by,
        "reported_after_s": round_to_tenths(reports.after_s),
        "reported_otherwise": reports.taken_back,
        "well_after_s": round_to_tenths(reports.well_after_s),
        "recovery_max_s": round_to_tenths(recovered_s),
    });
    let act = Act { tally, figures, broken };
    stand.stop(options, &act, None).await?;
    Ok(act)
}

/// The times of the outages, all of which have ended.
struct Outages {
    /// When each ended, in µs.
    ends: Vec<i64>,
    /// The long one, from when to when.
    away: (i64, i64),
    /// How many items waited when the server came back.
    waited: usize,
}

/// Runs the load. Meanwhile the server is killed and restarted, at first immediately, at last after a long time.
async fn trouble(stand: &Stand) -> anyhow::Result<Outages> {
    let (stop, size) = (CancellationToken::new(), stand.size);
    let mut random = Random::new(stand.seed);
    let loads = stand.load(&stop);
    let mut ends = Vec::new();
    for restart in 1..=size.restarts {
        tokio::time::sleep(ms(random.between(size.restart_every.0, size.restart_every.1))).await;
        stand.server.kill().await?;
        stand.server.run().await?;
        ends.push(now_us());
        say(format!("restart {restart} of {}, accepted {}", size.restarts, stand.load.count()));
    }
    tokio::time::sleep(AROUND.max(ms(size.restart_every.0))).await;
    stand.server.kill().await?;
    let from = now_us();
    say(format!("the server is away, accepted {}", stand.load.count()));
    tokio::time::sleep(size.away).await;
    let (waited, to) = (stand.setup.open().await?, now_us());
    stand.server.run().await?;
    ends.push(now_us());
    say(format!("the server is back, accepted {}, waiting {waited}", stand.load.count()));
    tokio::time::sleep(AROUND).await;
    stop.cancel();
    loads.join_all().await;
    Ok(Outages { ends, away: (from, to), waited })
}

/// Returns what readiness reported about the long outage. Waits until every process reports that the engine is
/// available, or until a time limit. Any reason counts, because a broken connection has many descriptions.
async fn until_well(watch: &ReadinessWatch, away: (i64, i64)) -> OutageReports {
    let began = Instant::now();
    loop {
        let reports = watch.reports(DISPATCHERS, away, "");
        if reports.well == DISPATCHERS || began.elapsed() > RECOVERY {
            return reports;
        }
        tokio::time::sleep(ms(100)).await;
    }
}
