//! Retention: deletes old records. Its sections are executions (with their nodes and dead letters), jobs, schedules,
//! webhook deliveries and activity.
//!
//! Invariants
//! - A lease lets one process at a time do this. If a second process did it too, it would do no harm.
//! - A walk goes through the records of one section, from the oldest to the newest, in slices of one commit each. A
//!   walk that is interrupted continues in the next pass. When it has reached the end, a new walk begins.
//! - After each slice the loop rests for as long as the slice took, so deleting uses at most about half of the time of
//!   one connection. Otherwise it goes on while there are records to delete.
//! - Sections take turns, and a failure in one section does not stop the other sections.
//!
//! What happens if this process dies: another process gets the lease when it expires, and begins new walks.
//!
//! Not here: which records are deleted (`store::retention`).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kernel::signals::metrics;
use store::Store;
use store::process::lease::Lease;
use store::retention::{Cursor, Section};
use tokio_util::sync::CancellationToken;

use crate::config::Retention as Settings;

/// How often a process tries to acquire the lease. Also the shortest rest after a walk that found nothing to delete.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// The shortest rest after a walk that deleted something.
const MIN_REST: Duration = Duration::from_secs(5);
/// The longest rest, however long a walk took.
const MAX_REST: Duration = Duration::from_secs(10 * 60);
/// A walk that found nothing rests for this many times as long as it took.
const EMPTY_FACTOR: u32 = 10;
/// The most records that one slice checks.
const SLICE: i32 = 500;
/// After a walk that deleted at least this many records, the next walk begins after `MIN_REST`, because it will
/// probably find as many.
const BUSY_THRESHOLD: u64 = 1_000;
/// How long a pass works on one section before it continues with the next section.
const SECTION_TIME: Duration = Duration::from_secs(20);
/// The shortest and the longest rest between two slices.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(500));
/// How often the lease is extended.
const EXTEND: Duration = Duration::from_secs(5);

const LEASE: Lease =
    Lease { name: "forebayRetention", at_most: Duration::from_secs(2 * 60), at_least: Duration::from_secs(5) };

pub(crate) struct Retention {
    store: Store,
    settings: Settings,
    /// The name under which this process holds the lease.
    holder: String,
    stop: CancellationToken,
    /// Where the walk of each section continues.
    cursors: Mutex<BTreeMap<Section, Cursor>>,
}

/// The result of a pass over one section, or over all sections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SectionResult {
    deleted: u64,
    /// `SECTION_TIME` was over before the walk reached the end.
    more: bool,
    /// The lease was lost to another process.
    lost: bool,
}

impl Retention {
    pub(crate) fn new(store: Store, settings: Settings, holder: String, stop: CancellationToken) -> Retention {
        Retention { store, settings, holder, stop, cursors: Mutex::default() }
    }

    /// Works on every section; returns how long to rest.
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let locked = self.store.lock(LEASE, &self.holder).await;
        if !matches!(locked, Ok(true)) {
            ::metrics::counter!(metrics::LOCK_FAILURES.name).increment(1);
            return locked.map(|_| None);
        }
        let began = Instant::now();
        let mut all = SectionResult::default();
        for section in Section::ALL.into_iter().take_while(|_| !self.stop.is_cancelled()) {
            match self.prune(section).await {
                Ok(result) => {
                    all.deleted += result.deleted;
                    all.more |= result.more;
                    all.lost |= result.lost;
                }
                Err(error) => {
                    let (section, error) = (section.name(), &error as &dyn std::error::Error);
                    tracing::warn!(section, error, "Retention of a section failed; the next pass retries it");
                }
            }
            if all.lost {
                return Ok(None);
            }
        }
        let rest = rest(all, began.elapsed(), self.shortest_retention());
        // This process keeps the lease while it rests, so that no other process deletes records in that time.
        let kept = Lease { at_least: began.elapsed() + rest, ..LEASE };
        self.store.unlock(kept, &self.holder).await?;
        Ok(Some(rest))
    }

    async fn prune(&self, section: Section) -> Result<SectionResult, store::Error> {
        let mut result = SectionResult::default();
        let Some(age) = self.age(section) else { return Ok(result) };
        let (began, mut extended) = (Instant::now(), Instant::now());
        loop {
            let slice_began = Instant::now();
            let slice = self.store.retire(section, age, self.cursor(section), SLICE).await?;
            self.remember(section, slice.next);
            result.deleted += slice.retired;
            if section == Section::Executions {
                ::metrics::counter!(metrics::EXECUTIONS_DELETED.name).increment(slice.retired);
            }
            result.more = slice.next.is_some() && (began.elapsed() >= SECTION_TIME || self.stop.is_cancelled());
            if slice.next.is_none() || result.more {
                break;
            }
            let pause = tokio::time::sleep(slice_began.elapsed().clamp(PAUSE.0, PAUSE.1));
            tokio::select! { () = pause => {}, () = self.stop.cancelled() => {} }
            if extended.elapsed() >= EXTEND {
                extended = Instant::now();
                result.lost = !self.store.extend(LEASE, &self.holder).await?;
                if result.lost {
                    break;
                }
            }
        }
        if result.deleted > 0 {
            tracing::info!(section = section.name(), deleted = result.deleted, "Retention deleted old records");
        }
        Ok(result)
    }

    fn age(&self, section: Section) -> Option<Duration> {
        let days = match section {
            Section::Executions => self.settings.execution_days,
            // Schedules are kept for as long as the executions that they started.
            Section::Schedules => self.settings.execution_days,
            Section::Jobs => self.settings.job_days,
            Section::Deliveries => self.settings.delivery_days,
            Section::Activity => self.settings.activity_days,
        };
        // Zero days: records are kept forever.
        (days > 0.0).then(|| Duration::from_secs_f64(days * 24.0 * 60.0 * 60.0))
    }

    /// The shortest time for which records are kept.
    fn shortest_retention(&self) -> Duration {
        Section::ALL.into_iter().filter_map(|section| self.age(section)).min().unwrap_or(MAX_REST)
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

/// How long to rest after a pass. The rest is at most half of `shortest_retention` after a short walk that found
/// nothing, so that records with a short retention are not deleted much too late.
fn rest(done: SectionResult, took: Duration, shortest_retention: Duration) -> Duration {
    if done.more {
        PAUSE.1
    } else if done.deleted >= BUSY_THRESHOLD {
        MIN_REST
    } else if done.deleted > 0 {
        took.clamp(MIN_REST, MAX_REST)
    } else {
        (took * EMPTY_FACTOR).clamp(EVERY.min(shortest_retention / 2).max(MIN_REST), MAX_REST)
    }
}

#[cfg(test)]
mod tests {
    use super::{BUSY_THRESHOLD, Duration, EVERY, MAX_REST, MIN_REST, PAUSE, SectionResult, rest};

    #[test]
    fn it_rests_long_only_when_nothing_is_left_to_delete() {
        let (took, month, moment) =
            (Duration::from_secs(20), Duration::from_secs(30 * 86_400), Duration::from_secs(12));
        let deleted = SectionResult { deleted: 9, ..SectionResult::default() };
        assert_eq!(rest(SectionResult { more: true, ..deleted }, took, month), PAUSE.1);
        assert_eq!(rest(deleted, took, month), took);
        assert_eq!(rest(SectionResult { deleted: BUSY_THRESHOLD, ..SectionResult::default() }, took, month), MIN_REST);
        assert_eq!(rest(deleted, Duration::ZERO, month), MIN_REST);
        assert_eq!(rest(SectionResult::default(), Duration::ZERO, month), EVERY);
        assert_eq!(rest(SectionResult::default(), Duration::ZERO, moment), moment / 2);
        assert_eq!(rest(SectionResult::default(), took, month), Duration::from_secs(200));
        assert_eq!(rest(SectionResult::default(), took * 10, month), MAX_REST);
    }
}
