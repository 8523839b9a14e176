//! The third act: starts reach the server, and three in ten answers are lost.
//!
//! Invariants
//! - The workflows end immediately. So when a start is repeated, its workflow either still runs or has closed.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::proxy::Proxy;
use super::server::TemporalServer;
use super::{Act, Size, Stand};
use crate::chaos::ChaosOptions;
use crate::chaos::mutant::Mutant;
use crate::random::Random;
use crate::report::say;

pub(super) async fn act(options: &ChaosOptions, size: Size, mutant: Option<Mutant>) -> anyhow::Result<Act> {
    say(format!("cuts: answers to starts are cut for {} s", size.cuts.as_secs()));
    let server = TemporalServer::start().await?;
    let duplicates = mutant == Some(Mutant::AllowDuplicates);
    let proxy = Proxy::start(server.port, Random::new(options.seed ^ 11), duplicates).await?;
    let stand = Stand::start(options, size, server, proxy.port).await?;
    stand.setup.while_all_live(trouble(&stand)).await?;
    let tally = stand.tally().await?;
    let (starts, cuts) = (proxy.starts(), proxy.cuts());
    // The proxy must have cut about as many answers as its random choices demand.
    let staged = [("never_cut", cuts * 4 < starts || cuts == 0)];
    let broken = tally.broken("cuts", if mutant.is_none() { &staged } else { &[] });
    let act = Act { tally, figures: json!({ "cut_answers": cuts, "starts_behind_the_proxy": starts }), broken };
    stand.stop(options, &act, mutant).await?;
    Ok(act)
}

async fn trouble(stand: &Stand) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let loads = stand.load(&stop);
    tokio::time::sleep(stand.size.cuts).await;
    stop.cancel();
    loads.join_all().await;
    Ok(())
}
