//! The second act: the server is killed and started again on its file, then away for long, under load.
//!
//! Invariants
//! - Each dispatcher says that the engine is away for as long as it is, and finds it again by itself.
//! - Nobody helps: no process of ours is restarted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::server::Server;
use super::{Act, DISPATCHERS, Size, Stand};
use crate::chaos::outage::told::{Told, Watch};
use crate::chaos::outage::{recovery, tenths};
use crate::chaos::{Request, ms};
use crate::random::Random;
use crate::report::say;
use crate::service::now_us;

/// After an outage something must end within so long.
const RECOVERY: Duration = Duration::from_secs(30);
/// The load before the long outage, and after it.
const AROUND: Duration = Duration::from_secs(3);

pub(super) async fn act(request: &Request, size: Size) -> anyhow::Result<Act> {
    say(format!("away: the server is killed {} times, then away for {} s", size.restarts, size.away.as_secs()));
    let server = Server::start().await?;
    let port = server.port;
    let stand = Stand::start(request, size, server, port).await?;
    let (watch, stop_watching) = (Watch::default(), CancellationToken::new());
    let watching = tokio::spawn(watch.clone().run(Arc::clone(&stand.setup.fleet), stop_watching.clone()));
    let outages = stand.setup.while_all_live(trouble(&stand)).await?;
    let tally = stand.tally().await?;
    let told = until_well(&watch, outages.away).await;
    stop_watching.cancel();
    watching.await.context("watching broke off")?;
    let recovered_s = recovery(&stand.setup.client, &outages.ends).await?;
    let broken = tally.broken(
        "away",
        &[
            ("readiness", told.by < DISPATCHERS || told.taken_back > 0),
            ("well_again", told.well < DISPATCHERS || told.well_after_s > RECOVERY.as_secs_f64()),
            ("recovery", recovered_s > RECOVERY.as_secs_f64()),
            // Something was really waiting for it.
            ("never_away", outages.waited == 0),
        ],
    );
    let figures = json!({
        "outages": outages.ends.len(),
        "away_s": tenths(size.away.as_secs_f64()),
        "waiting_at_return": outages.waited,
        "told_by": told.by,
        "told_after_s": tenths(told.after_s),
        "told_otherwise": told.taken_back,
        "well_after_s": tenths(told.well_after_s),
        "recovery_max_s": tenths(recovered_s),
    });
    let act = Act { tally, told: figures, broken };
    stand.stop(request, &act, None).await?;
    Ok(act)
}

/// The outages, which are over.
struct Outages {
    /// When each ended, in µs.
    ends: Vec<i64>,
    /// The long one, from when to when.
    away: (i64, i64),
    /// What waited when the server came back from it.
    waited: usize,
}

/// The load, and beside it a server that dies and comes back, at once and after long.
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

/// What readiness told of the long outage, once everybody said that all is well, or should have. Whatever the reason:
/// a connection breaks off in many words.
async fn until_well(watch: &Watch, away: (i64, i64)) -> Told {
    let began = Instant::now();
    loop {
        let told = watch.told(DISPATCHERS, away, "");
        if told.well == DISPATCHERS || began.elapsed() > RECOVERY {
            return told;
        }
        tokio::time::sleep(ms(100)).await;
    }
}
