//! Times of a schedule: a cron expression in a time zone, or one moment.
//!
//! Invariants
//! - Time zones are those of the build, so every process of one version agrees.
//! - Ticks lie on whole seconds, in order, at least ten seconds apart within a minute.
//! - What is read has a tick to come: an expression that never comes true is refused.
//! - A fixed time of day that a clock change leaves out comes at the first moment after the gap, and one that it
//!   repeats comes the first time only. Anything with several times a day follows the wall clock through both.
//! - Forwards and backwards are the same ticks: the expression is only ever asked about wall clocks, and what a clock
//!   change does to them is decided here, span by span.
//!
//! Not here: the text of an expression (`cron`), which of the ticks are run (`schedule`).

use std::sync::LazyLock;
use std::time::Duration;

use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, JobType};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

use super::{Timing, cron};

/// The longest expression: a list of every minute is shorter.
pub const MAX_CRON_LEN: usize = 200;
const MAX_ZONE_LEN: usize = 64;
/// How close two ticks of a minute may be.
pub const LEAST_SECONDS: u16 = 10;
/// How many clock changes a search goes past: some hundred years of them.
const MOST_SPANS: usize = 500;
/// Later times cannot be written once a deadline is added to them.
const LATEST: i64 = 253_370_764_800;

/// The time zones that this build knows.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Why there are no such times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    #[error("{0}")]
    Cron(String),
    #[error("must be a time zone of the IANA database, such as Europe/Berlin or UTC")]
    Zone,
    #[error("must be before the year 9999")]
    At,
}

/// The ticks of a schedule.
#[derive(Clone, Debug)]
pub struct Calendar {
    ticks: Ticks,
}

#[derive(Clone, Debug)]
enum Ticks {
    Cron(Box<Wall>),
    At(Timestamp),
}

impl Calendar {
    /// Reads a timing. That its expression comes true is tried from the time that is given.
    pub fn read(timing: &Timing, from: Timestamp) -> Result<Calendar, Bad> {
        let ticks = match timing {
            Timing::Cron { cron, timezone } => {
                Ticks::Cron(Box::new(Wall { cron: expression(cron)?, zone: zone(timezone)? }))
            }
            Timing::At { at } if at.as_second() < LATEST => Ticks::At(*at),
            Timing::At { .. } => return Err(Bad::At),
        };
        let calendar = Calendar { ticks };
        if matches!(calendar.ticks, Ticks::Cron(_)) && calendar.after(from).is_none() {
            return Err(Bad::Cron("never comes: no day is all that it asks for".to_owned()));
        }
        Ok(calendar)
    }

    /// The first tick after a time.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let found = match &self.ticks {
            Ticks::At(at) => Some(*at),
            Ticks::Cron(wall) => wall.after(whole(time)?),
        };
        found.filter(|found| *found > time && found.as_second() < LATEST)
    }

    /// The last tick until a time, that time included.
    pub fn until(&self, time: Timestamp) -> Option<Timestamp> {
        let found = match &self.ticks {
            Ticks::At(at) => Some(*at),
            Ticks::Cron(wall) => wall.until(whole(time)?),
        };
        found.filter(|found| *found <= time)
    }

    /// Ticks that come after a time, so many at most.
    pub fn next(&self, time: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.after(time), |last| self.after(*last)).take(count).collect()
    }
}

/// An expression on the wall clock of a place.
#[derive(Clone, Debug)]
struct Wall {
    cron: Cron,
    zone: TimeZone,
}

/// A stretch of time without a change of the clock.
struct Span {
    /// When it begins, and by what the clock differed before: none for the first.
    begins: Option<(Timestamp, Offset)>,
    offset: Offset,
    /// When the next one begins.
    ends: Option<Timestamp>,
}

impl Wall {
    fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let mut span = self.span(time);
        let mut from = Some(span.offset.to_datetime(time));
        for _ in 0..MOST_SPANS {
            let tick = match from {
                Some(clock) if self.own(&span).is_none_or(|own| own <= clock) => self.next(clock, false),
                _ => self.next(self.own(&span)?, true),
            };
            let tick = span.offset.to_timestamp(tick?).ok()?;
            if span.ends.is_none_or(|ends| tick < ends) {
                return Some(tick);
            }
            span = self.span(span.ends?);
            from = None;
            if self.fills_gap(&span) {
                return span.begins.map(|(begins, _)| begins);
            }
        }
        None
    }

    fn until(&self, time: Timestamp) -> Option<Timestamp> {
        let mut span = self.span(time);
        let (mut to, mut included) = (span.offset.to_datetime(time), true);
        for _ in 0..MOST_SPANS {
            let tick = self.cron.find_previous_occurrence(&to, included).ok()?;
            if self.own(&span).is_none_or(|own| tick >= own) {
                return span.offset.to_timestamp(tick).ok();
            }
            let (begins, before) = span.begins?;
            if self.fills_gap(&span) {
                return Some(begins);
            }
            (to, included) = (before.to_datetime(begins), false);
            span = self.span(begins.checked_sub(Duration::from_secs(1)).ok()?);
        }
        None
    }

    fn next(&self, clock: DateTime, included: bool) -> Option<DateTime> {
        self.cron.find_next_occurrence(&clock, included).ok()
    }

    fn span(&self, time: Timestamp) -> Span {
        let begins = match time.checked_add(Duration::from_nanos(1)) {
            Ok(next) => self.zone.preceding(next).next().map(|change| change.timestamp()),
            Err(_) => None,
        };
        let before =
            |begins: Timestamp| Some((begins, self.zone.to_offset(begins.checked_sub(Duration::from_secs(1)).ok()?)));
        Span {
            begins: begins.and_then(before),
            offset: self.zone.to_offset(time),
            ends: self.zone.following(time).next().map(|change| change.timestamp()),
        }
    }

    /// The first wall clock of a span that counts: a fixed time that was there already does not come again.
    fn own(&self, span: &Span) -> Option<DateTime> {
        let (begins, before) = span.begins?;
        let begin = span.offset.to_datetime(begins);
        Some(if self.is_fixed() { begin.max(before.to_datetime(begins)) } else { begin })
    }

    /// Does a fixed time fall into what the clock left out when this span began?
    fn fills_gap(&self, span: &Span) -> bool {
        let Some((begins, before)) = span.begins.filter(|_| self.is_fixed()) else { return false };
        let (from, to) = (before.to_datetime(begins), span.offset.to_datetime(begins));
        self.next(from, true).is_some_and(|tick| tick < to)
    }

    fn is_fixed(&self) -> bool {
        self.cron.determine_job_type() == JobType::FixedTime
    }
}

/// A time without its part of a second.
fn whole(time: Timestamp) -> Option<Timestamp> {
    let second = time.as_nanosecond().div_euclid(1_000_000_000);
    Timestamp::from_second(i64::try_from(second).ok()?).ok()
}

/// A time zone by its name.
pub(super) fn zone(name: &str) -> Result<TimeZone, Bad> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
    if name.is_empty() || name.len() > MAX_ZONE_LEN || !name.chars().all(plain) {
        return Err(Bad::Zone);
    }
    ZONES.get(name).ok().filter(|zone| !zone.is_unknown()).ok_or(Bad::Zone)
}

fn expression(text: &str) -> Result<Cron, Bad> {
    let bad = |why: String| Bad::Cron(why);
    if text.is_empty() || text.len() > MAX_CRON_LEN {
        return Err(bad(format!("must be 1 to {MAX_CRON_LEN} characters")));
    }
    let text = cron::normalize(text).map_err(Bad::Cron)?;
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let cron = parser.parse(&text).map_err(|error| bad(format!("cannot be read: {error}")))?;
    if closest(&cron.pattern.seconds.values(), &cron.pattern.minutes.values()) < LEAST_SECONDS {
        return Err(bad(format!("comes too often: ticks lie at least {LEAST_SECONDS} seconds apart")));
    }
    Ok(cron)
}

/// How near two of these seconds come, the next minute's included where two of these minutes are neighbours.
fn closest(seconds: &[u16], minutes: &[u16]) -> u16 {
    let neighbours = minutes.iter().any(|minute| minutes.contains(&((minute + 1) % 60)));
    let around = seconds.first().zip(seconds.last()).map(|(first, last)| first + 60 - last).filter(|_| neighbours);
    let within = seconds.windows(2).filter_map(|pair| Some(pair.last()? - pair.first()?));
    within.chain(around).min().unwrap_or(60)
}
