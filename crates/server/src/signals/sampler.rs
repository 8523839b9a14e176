//! Tells how the queue stands: depth by stage, the oldest, slots.
//!
//! Invariants
//! - Each process samples the shards it looks after, so every shard is told of by one process at a
//!   time; sums over processes are right but for a moment while shards move.
//! - Nothing is told of a shard that another process looks after by the time the sample is complete.
//! - A sample is bounded; it never competes with claims for long.
//!
//! Not here: the look itself (`store::signals::sample`).

use std::sync::Arc;
use std::time::Duration;

use kernel::signals::metrics;
use store::Store;
use store::signals::sample::Sample;
use tokio::sync::watch;

use crate::process::heartbeat::Alive;

pub(crate) struct Sampler {
    pub(crate) store: Store,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
}

impl Sampler {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let mut samples = Vec::new();
        for shard in self.shards().iter().copied() {
            samples.push((shard, self.store.sample(shard).await?));
        }
        let owned = self.shards();
        let owned = samples.into_iter().filter(|(shard, _)| owned.contains(shard));
        tell(&owned.fold(Sample::default(), |all, (_, sample)| all.and(sample)));
        Ok(None)
    }

    fn shards(&self) -> Arc<[i16]> {
        self.alive.borrow().as_ref().map(|alive| Arc::clone(&alive.shards)).unwrap_or_default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are bounded far below what a float holds exactly")]
fn tell(sample: &Sample) {
    let stages = [
        ("ready", sample.ready),
        ("delayed", sample.delayed),
        ("key", sample.for_key),
        ("definition", sample.for_definition),
        ("slot", sample.slots),
    ];
    for (stage, count) in stages {
        ::metrics::gauge!(metrics::DEPTH.name, "stage" => stage).set(count as f64);
    }
    for (waits_for, age) in [("turn", sample.oldest_for_turn_s), ("slot", sample.oldest_for_slot_s)] {
        ::metrics::gauge!(metrics::OLDEST_AGE.name, "waits_for" => waits_for).set(age);
    }
    ::metrics::gauge!(metrics::SLOTS_IN_USE.name).set(sample.slots as f64);
    ::metrics::gauge!(metrics::SLOTS_LIMIT.name).set(sample.slots_limit as f64);
}
