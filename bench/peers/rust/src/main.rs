//! The peers written in Rust: `peer NAME MODE DATABASE_URL OPTIONS`.
//!
//! Not here: the orders, the events and the handler, which both peers share (`instruction`).

mod apalis_peer;
mod graphile_peer;
mod instruction;

use anyhow::bail;
use instruction::Instruction;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let order = Instruction::from_args()?;
    match (order.peer.as_str(), order.mode.as_str()) {
        ("graphile_worker", "setup") => graphile_peer::setup(&order).await,
        ("graphile_worker", "fill") => graphile_peer::fill(&order).await,
        ("graphile_worker", "send") => graphile_peer::send(&order).await,
        ("graphile_worker", "work") => graphile_peer::work(order).await,
        ("apalis", "setup") => apalis_peer::setup(&order).await,
        ("apalis", "fill") => apalis_peer::fill(&order).await,
        ("apalis", "send") => apalis_peer::send(&order).await,
        ("apalis", "work") => apalis_peer::work(order).await,
        (peer, mode) => bail!("there is no peer {peer} with a mode {mode}"),
    }
}
