//! The times of sweeps, which find ready items whose notification was lost. Each shard is swept once per poll interval:
//! a few shards together, with one statement. These groups are spread evenly over the interval.
//!
//! Not here: the sweep itself (`queue::dispatch`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kernel::ids::SHARDS;

/// The time of each shard's next sweep.
pub(super) struct SweepSchedule {
    poll: Duration,
    next: BTreeMap<i16, NextSweep>,
}

struct NextSweep {
    at: Instant,
    /// True after the first sweep: the shard then has the offset of its group within the poll interval.
    has_offset: bool,
}

/// The most shards swept together, between two rounds.
const GROUP: i16 = 4;

impl SweepSchedule {
    pub(super) fn new(poll: Duration) -> SweepSchedule {
        SweepSchedule { poll, next: BTreeMap::new() }
    }

    /// Makes every shard due now.
    pub(super) fn make_all_due(&mut self) {
        let now = Instant::now();
        for next in self.next.values_mut() {
            next.at = next.at.min(now);
        }
    }

    pub(super) fn until_next(&self) -> Duration {
        let next = self.next.values().map(|next| next.at.saturating_duration_since(Instant::now())).min();
        next.unwrap_or(self.poll).min(self.poll)
    }

    /// Takes the next shards that are due, and sets the times of their next sweeps. A shard that is not known yet is
    /// due immediately.
    pub(super) fn take_due(&mut self, shards: &[i16]) -> Vec<i16> {
        self.next.retain(|shard, _| shards.contains(shard));
        let now = Instant::now();
        for shard in shards {
            self.next.entry(*shard).or_insert(NextSweep { at: now, has_offset: false });
        }
        // The shard that has waited longest comes first. So each shard has its turn, even if all shards are made due
        // again and again.
        let mut due: Vec<_> = self.next.iter_mut().filter(|(_, next)| next.at <= now).collect();
        due.sort_by_key(|(_, next)| next.at);
        let due = due.into_iter().take(usize::from(GROUP.unsigned_abs()));
        due.map(|(shard, next)| {
            let offset =
                self.poll * u32::from((shard / GROUP + 1).unsigned_abs()) / u32::from((SHARDS / GROUP).unsigned_abs());
            next.at = now + if next.has_offset { self.poll } else { offset };
            next.has_offset = true;
            *shard
        })
        .collect()
    }
}
