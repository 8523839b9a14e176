//! The third act: starts reach the server, and of three in ten the answer never comes back.
//!
//! Invariants
//! - Workflows end at once: a start that is repeated meets one that runs, or one that has closed.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::proxy::Proxy;
use super::server::Server;
use super::{Act, Size, Stand};
use crate::chaos::Request;
use crate::chaos::mutant::Mutant;
use crate::random::Random;
use crate::report::say;

pub(super) async fn act(request: &Request, size: Size, mutant: Option<Mutant>) -> anyhow::Result<Act> {
    say(format!("cuts: answers to starts are cut for {} s", size.cuts.as_secs()));
    let server = Server::start().await?;
    let duplicates = mutant == Some(Mutant::AllowDuplicates);
    let proxy = Proxy::start(server.port, Random::new(request.seed ^ 11), duplicates).await?;
    let stand = Stand::start(request, size, server, proxy.port).await?;
    stand.setup.while_all_live(trouble(&stand)).await?;
    let tally = stand.tally().await?;
    let (starts, cuts) = (proxy.starts(), proxy.cuts());
    // As many as drawn, at least.
    let staged = [("never_cut", cuts * 4 < starts || cuts == 0)];
    let broken = tally.broken("cuts", if mutant.is_none() { &staged } else { &[] });
    let act = Act { tally, told: json!({ "cut_answers": cuts, "starts_behind_the_proxy": starts }), broken };
    stand.stop(request, &act, mutant).await?;
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
