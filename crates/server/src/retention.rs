//! Deletes what ended long ago: executions with their nodes and dead letters, jobs of events, schedules, deliveries of
//! webhooks, and old activity.
//!
//! Invariants
//! - One process at a time, by a lease; two would only find less to do.
//! - A walk goes on where it stopped, also in the next pass, until it reaches the end; the next walk begins at the
//!   oldest.
//! - It works as long as something is left, and rests between two slices for as long as a slice took: it keeps up with
//!   what ends, and uses at most half of one connection's time.
//! - Sections take turns, and the failure of one stops no other.
//! - Safe to stop anywhere: each slice is one commit.
//!
//! Not here: what may go, and how a slice is bounded (`store::retention`).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kernel::signals::metrics;
use store::Store;
use store::process::lease::Lease;
use store::retention::{Cursor, Section};
use tokio_util::sync::CancellationToken;

use crate::config::Retention as Settings;

/// How often a process that does not hold the lease asks for it, and the shortest rest after a walk that found nothing.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// The shortest rest after a walk that deleted something.
const SOONEST: Duration = Duration::from_secs(5);
/// The longest rest, however long a walk took.
const LATEST: Duration = Duration::from_secs(10 * 60);
/// A walk that found nothing rests for this many times as long as it took.
const IN_VAIN: u32 = 10;
/// Records that one slice looks at.
const SLICE: i32 = 500;
/// A walk that deleted so many will find as many again soon.
const MANY: u64 = 1_000;
/// How long one section works before it is the next one's turn.
const TURN: Duration = Duration::from_secs(20);
/// The shortest and the longest rest between two slices.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(500));
/// How often the lease is extended.
const EXTEND: Duration = Duration::from_secs(5);

const LEASE: Lease =
    Lease { name: "forebayRetention", at_most: Duration::from_secs(2 * 60), at_least: Duration::from_secs(5) };

pub(crate) struct Retention {
    store: Store,
    settings: Settings,
    /// Who holds the lease.
    holder: String,
    stop: CancellationToken,
    /// Where the walk of each section goes on.
    cursors: Mutex<BTreeMap<Section, Cursor>>,
}

/// What a section's turn came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turn {
    retired: u64,
    /// The turn ended before the walk did.
    more: bool,
    /// Another process holds the lease.
    lost: bool,
}

impl Retention {
    pub(crate) fn new(store: Store, settings: Settings, holder: String, stop: CancellationToken) -> Retention {
        Retention { store, settings, holder, stop, cursors: Mutex::default() }
    }

    /// Gives every section a turn; answers how long to rest.
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let locked = self.store.lock(LEASE, &self.holder).await;
        if !matches!(locked, Ok(true)) {
            ::metrics::counter!(metrics::LOCK_FAILURES.name).increment(1);
            return locked.map(|_| None);
        }
        let began = Instant::now();
        let mut all = Turn::default();
        for section in Section::ALL.into_iter().take_while(|_| !self.stop.is_cancelled()) {
            match self.turn(section).await {
                Ok(turn) => {
                    all.retired += turn.retired;
                    all.more |= turn.more;
                    all.lost |= turn.lost;
                }
                Err(error) => {
                    let (section, error) = (section.name(), &error as &dyn std::error::Error);
                    tracing::warn!(section, error, "Retention of a section failed; the next pass goes on with it");
                }
            }
            if all.lost {
                return Ok(None);
            }
        }
        let rest = rest(all, began.elapsed(), self.shortest());
        // The lease stays taken while this process rests: others do not walk in between.
        let kept = Lease { at_least: began.elapsed() + rest, ..LEASE };
        self.store.unlock(kept, &self.holder).await?;
        Ok(Some(rest))
    }

    async fn turn(&self, section: Section) -> Result<Turn, store::Error> {
        let mut turn = Turn::default();
        let Some(age) = self.age(section) else { return Ok(turn) };
        let (began, mut extended) = (Instant::now(), Instant::now());
        loop {
            let slice_began = Instant::now();
            let slice = self.store.retire(section, age, self.cursor(section), SLICE).await?;
            self.remember(section, slice.next);
            turn.retired += slice.retired;
            if section == Section::Executions {
                ::metrics::counter!(metrics::RETIRED.name).increment(slice.retired);
            }
            turn.more = slice.next.is_some() && (began.elapsed() >= TURN || self.stop.is_cancelled());
            if slice.next.is_none() || turn.more {
                break;
            }
            let pause = tokio::time::sleep(slice_began.elapsed().clamp(PAUSE.0, PAUSE.1));
            tokio::select! { () = pause => {}, () = self.stop.cancelled() => {} }
            if extended.elapsed() >= EXTEND {
                extended = Instant::now();
                turn.lost = !self.store.extend(LEASE, &self.holder).await?;
                if turn.lost {
                    break;
                }
            }
        }
        if turn.retired > 0 {
            tracing::info!(section = section.name(), retired = turn.retired, "Deleted what ended long ago");
        }
        Ok(turn)
    }

    fn age(&self, section: Section) -> Option<Duration> {
        let days = match section {
            Section::Executions => self.settings.execution_days,
            // As long as the executions that they started.
            Section::Schedules => self.settings.execution_days,
            Section::Jobs => self.settings.job_days,
            Section::Deliveries => self.settings.delivery_days,
            Section::Activity => self.settings.activity_days,
        };
        // Zero days: for ever.
        (days > 0.0).then(|| Duration::from_secs_f64(days * 24.0 * 60.0 * 60.0))
    }

    /// The shortest time that anything is kept for.
    fn shortest(&self) -> Duration {
        Section::ALL.into_iter().filter_map(|section| self.age(section)).min().unwrap_or(LATEST)
    }

    fn cursor(&self, section: Section) -> Option<Cursor> {
        self.cursors.lock().get(&section).copied()
    }

    fn remember(&self, section: Section, next: Option<Cursor>) {
        let mut cursors = self.cursors.lock();
        match next {
            Some(cursor) => drop(cursors.insert(section, cursor)),
            None => drop(cursors.remove(&section)),
        }
    }
}

/// How long to rest. What is kept for `shortest` is late by at most half of that, unless walks take longer.
fn rest(done: Turn, took: Duration, shortest: Duration) -> Duration {
    if done.more {
        PAUSE.1
    } else if done.retired >= MANY {
        SOONEST
    } else if done.retired > 0 {
        took.clamp(SOONEST, LATEST)
    } else {
        (took * IN_VAIN).clamp(EVERY.min(shortest / 2).max(SOONEST), LATEST)
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, EVERY, LATEST, MANY, PAUSE, SOONEST, Turn, rest};

    #[test]
    fn it_rests_long_only_when_nothing_is_left_to_delete() {
        let (took, month, moment) =
            (Duration::from_secs(20), Duration::from_secs(30 * 86_400), Duration::from_secs(12));
        let retired = Turn { retired: 9, ..Turn::default() };
        assert_eq!(rest(Turn { more: true, ..retired }, took, month), PAUSE.1);
        assert_eq!(rest(retired, took, month), took);
        assert_eq!(rest(Turn { retired: MANY, ..Turn::default() }, took, month), SOONEST);
        assert_eq!(rest(retired, Duration::ZERO, month), SOONEST);
        assert_eq!(rest(Turn::default(), Duration::ZERO, month), EVERY);
        assert_eq!(rest(Turn::default(), Duration::ZERO, moment), moment / 2);
        assert_eq!(rest(Turn::default(), took, month), Duration::from_secs(200));
        assert_eq!(rest(Turn::default(), took * 10, month), LATEST);
    }
}
