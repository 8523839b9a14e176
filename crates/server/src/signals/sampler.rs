//! Publishes the state of the queue as metrics: depth by stage, age of the oldest item, slots.
//!
//! Invariants
//! - Each process samples the shards that it owns, so only one process reports each shard. Sums over all processes are
//!   correct, except for a moment when a shard gets another owner.
//! - A shard whose owner has changed while it was sampled is left out.
//! - The statement reads a bounded number of rows, so it does not slow down claims for long.
//!
//! Not here: the statement (`store::signals::sample`).

use std::sync::Arc;
use std::time::Duration;

use kernel::signals::metrics;
use store::Store;
use store::signals::sample::Sample;
use tokio::sync::watch;

use crate::process::heartbeat::Membership;

pub(crate) struct Sampler {
    pub(crate) store: Store,
    pub(crate) membership: watch::Receiver<Option<Membership>>,
}

impl Sampler {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let mut samples = Vec::new();
        for shard in self.shards().iter().copied() {
            samples.push((shard, self.store.sample(shard).await?));
        }
        let owned = self.shards();
        let owned = samples.into_iter().filter(|(shard, _)| owned.contains(shard));
        publish(&owned.fold(Sample::default(), |all, (_, sample)| all.and(sample)));
        Ok(None)
    }

    fn shards(&self) -> Arc<[i16]> {
        self.membership.borrow().as_ref().map(|membership| Arc::clone(&membership.shards)).unwrap_or_default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are bounded far below what a float holds exactly")]
fn publish(sample: &Sample) {
    let stages = [
        ("ready", sample.ready),
        ("delayed", sample.delayed),
        ("blocked_by_key", sample.for_key),
        ("blocked_by_definition", sample.for_definition),
        ("holds_slot", sample.slots),
    ];
    for (stage, count) in stages {
        ::metrics::gauge!(metrics::DEPTH.name, "stage" => stage).set(count as f64);
    }
    for (waiting_for, age) in [("dispatch", sample.oldest_for_turn_s), ("slot", sample.oldest_for_slot_s)] {
        ::metrics::gauge!(metrics::OLDEST_READY_AGE.name, "waiting_for" => waiting_for).set(age);
    }
    ::metrics::gauge!(metrics::SLOTS_IN_USE.name).set(sample.slots as f64);
    ::metrics::gauge!(metrics::SLOTS_LIMIT.name).set(sample.slots_limit as f64);
}
