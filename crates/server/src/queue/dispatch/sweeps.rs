//! When which shard is looked at for work that nobody hinted at: each once a poll, spread evenly.
//!
//! Not here: looking (`queue::dispatch`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kernel::ids::SHARDS;

/// The shards' places in the poll.
pub(super) struct Sweeps {
    poll: Duration,
    next: BTreeMap<i16, Next>,
}

struct Next {
    at: Instant,
    /// It was looked at before, and so has its place in the poll.
    placed: bool,
}

/// The most shards looked at between two turns.
const SWEPT_AT_ONCE: usize = 4;

impl Sweeps {
    pub(super) fn new(poll: Duration) -> Sweeps {
        Sweeps { poll, next: BTreeMap::new() }
    }

    /// Every shard is due at once.
    pub(super) fn all(&mut self) {
        let now = Instant::now();
        for next in self.next.values_mut() {
            next.at = next.at.min(now);
        }
    }

    pub(super) fn until_next(&self) -> Duration {
        let next = self.next.values().map(|next| next.at.saturating_duration_since(Instant::now())).min();
        next.unwrap_or(self.poll).min(self.poll)
    }

    /// The next shards that are due: new ones at once, the others in their turn.
    pub(super) fn due(&mut self, shards: &[i16]) -> Vec<i16> {
        self.next.retain(|shard, _| shards.contains(shard));
        let now = Instant::now();
        for shard in shards {
            self.next.entry(*shard).or_insert(Next { at: now, placed: false });
        }
        // Who has waited longest goes first: however often all are due, none is left out.
        let mut due: Vec<_> = self.next.iter_mut().filter(|(_, next)| next.at <= now).collect();
        due.sort_by_key(|(_, next)| next.at);
        let due = due.into_iter().take(SWEPT_AT_ONCE);
        due.map(|(shard, next)| {
            let place = self.poll * u32::from(shard.unsigned_abs() + 1) / u32::from(SHARDS.unsigned_abs());
            next.at = now + if next.placed { self.poll } else { place };
            next.placed = true;
            *shard
        })
        .collect()
    }
}
