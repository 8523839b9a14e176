//! Times of a schedule: a cron expression in a time zone, or one moment.
//!
//! Invariants
//! - The time zone database is part of the build, so all processes of one version compute the same ticks.
//! - Ticks are at whole seconds, in order. Two ticks of an expression are at least ten seconds apart.
//! - A cron expression that never matches is refused when it is read.
//! - If a clock change skips a fixed time of day, the tick comes at the first instant after the gap. If a clock change
//!   repeats a fixed time, the tick comes only the first time. Expressions with several times a day follow the wall
//!   clock through both changes.
//! - Searching forwards and backwards gives the same ticks: the expression is evaluated on wall clock times only, and
//!   this file handles clock changes, span by span.
//!
//! Not here: the text of an expression (`cron`), which ticks start an execution (`schedule`).

use std::sync::LazyLock;
use std::time::Duration;

use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, JobType};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

use super::{Timing, cron};

/// The longest cron expression. A list of all sixty minutes fits.
pub const MAX_CRON_LEN: usize = 200;
const MAX_ZONE_LEN: usize = 64;
/// The shortest time between two ticks.
pub const LEAST_SECONDS: u16 = 10;
/// How many time spans without a clock change one search visits. A zone with summer time has two of them a year.
const MOST_SPANS: usize = 500;
/// The year 9999, in seconds since 1970. RFC 3339 cannot represent times after that year, and the deadline of an
/// execution is later than its start.
const LATEST: i64 = 253_370_764_800;

/// The time zones of this build.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Why a timing is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    #[error("{0}")]
    Cron(String),
    #[error("must be a time zone of the IANA database, such as Europe/Berlin or UTC")]
    TimeZone,
    #[error("must be before the year 9999")]
    At,
}

/// Checks a time that a client chose: it must be before the year 9999.
pub fn check_at(at: Timestamp) -> Result<(), TimingError> {
    if at.as_second() < LATEST { Ok(()) } else { Err(TimingError::At) }
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
    /// Reads a timing. Its expression must match some time after `from`.
    pub fn read(timing: &Timing, from: Timestamp) -> Result<Calendar, TimingError> {
        let ticks = match timing {
            Timing::Cron { cron, timezone } => {
                Ticks::Cron(Box::new(Wall { cron: expression(cron)?, zone: zone(timezone)? }))
            }
            Timing::At { at } => check_at(*at).map(|()| Ticks::At(*at))?,
        };
        let calendar = Calendar { ticks };
        if matches!(calendar.ticks, Ticks::Cron(_)) && calendar.after(from).is_none() {
            return Err(TimingError::Cron("never matches: no day fulfils all its fields".to_owned()));
        }
        Ok(calendar)
    }

    /// The first tick after a time.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let found = match &self.ticks {
            Ticks::At(at) => Some(*at),
            Ticks::Cron(wall) => wall.after(whole(time)?),
        };
        found.filter(|found| *found > time && check_at(*found).is_ok())
    }

    /// The last tick at or before a time.
    pub fn until(&self, time: Timestamp) -> Option<Timestamp> {
        let found = match &self.ticks {
            Ticks::At(at) => Some(*at),
            Ticks::Cron(wall) => wall.until(whole(time)?),
        };
        found.filter(|found| *found <= time)
    }

    /// The first ticks after a time, at most `count`.
    pub fn next(&self, time: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.after(time), |last| self.after(*last)).take(count).collect()
    }
}

/// An expression with its time zone.
#[derive(Clone, Debug)]
struct Wall {
    cron: Cron,
    zone: TimeZone,
}

/// A time span without a clock change, in one time zone.
struct Span {
    /// When the span begins, and the offset before it; `None` for the first span.
    begins: Option<(Timestamp, Offset)>,
    offset: Offset,
    /// When the next span begins; `None` for the last span.
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

    /// The first wall clock time of a span that may tick. If a clock change repeats a fixed time of day, the second
    /// occurrence does not tick.
    fn own(&self, span: &Span) -> Option<DateTime> {
        let (begins, before) = span.begins?;
        let begin = span.offset.to_datetime(begins);
        Some(if self.is_fixed() { begin.max(before.to_datetime(begins)) } else { begin })
    }

    /// Does a fixed time fall into the gap before this span?
    fn fills_gap(&self, span: &Span) -> bool {
        let Some((begins, before)) = span.begins.filter(|_| self.is_fixed()) else { return false };
        let (from, to) = (before.to_datetime(begins), span.offset.to_datetime(begins));
        self.next(from, true).is_some_and(|tick| tick < to)
    }

    fn is_fixed(&self) -> bool {
        self.cron.determine_job_type() == JobType::FixedTime
    }
}

/// A time rounded down to whole seconds.
fn whole(time: Timestamp) -> Option<Timestamp> {
    let second = time.as_nanosecond().div_euclid(1_000_000_000);
    Timestamp::from_second(i64::try_from(second).ok()?).ok()
}

/// A time zone by its name.
pub(super) fn zone(name: &str) -> Result<TimeZone, TimingError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
    if name.is_empty() || name.len() > MAX_ZONE_LEN || !name.chars().all(plain) {
        return Err(TimingError::TimeZone);
    }
    ZONES.get(name).ok().filter(|zone| !zone.is_unknown()).ok_or(TimingError::TimeZone)
}

fn expression(text: &str) -> Result<Cron, TimingError> {
    let bad = |why: String| TimingError::Cron(why);
    if text.is_empty() || text.len() > MAX_CRON_LEN {
        return Err(bad(format!("must be 1 to {MAX_CRON_LEN} characters")));
    }
    let text = cron::normalize(text).map_err(TimingError::Cron)?;
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let cron = parser.parse(&text).map_err(|error| bad(format!("cannot be parsed: {error}")))?;
    if closest(&cron.pattern.seconds.values(), &cron.pattern.minutes.values()) < LEAST_SECONDS {
        return Err(bad(format!("ticks too often: ticks must be at least {LEAST_SECONDS} seconds apart")));
    }
    Ok(cron)
}

/// The shortest distance between two ticks, in seconds. If two of the minutes are adjacent, this includes the distance
/// from the last second of one minute to the first second of the next.
fn closest(seconds: &[u16], minutes: &[u16]) -> u16 {
    let neighbours = minutes.iter().any(|minute| minutes.contains(&((minute + 1) % 60)));
    let around = seconds.first().zip(seconds.last()).map(|(first, last)| first + 60 - last).filter(|_| neighbours);
    let within = seconds.windows(2).filter_map(|pair| Some(pair.last()? - pair.first()?));
    within.chain(around).min().unwrap_or(60)
}
