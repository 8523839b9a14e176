//! Schedules: when a workflow starts by the clock, which ticks run, and what happens to missed ticks.
//!
//!     ACTIVE ◀──pause, resume──▶ PAUSED
//!        │ └─────────┬───────────┘ ▲
//!        └──end──▶ ENDED ──change──┘ (to ACTIVE)
//!
//! Invariants
//! - Each tick is checked once, in order: the time of the next tick only moves forward.
//! - One pass runs at most `MOST_CAUGHT_UP` ticks, however many were missed.
//! - Whether a tick starts depends only on the executions that the same schedule started.
//!
//! Not here: the times of the ticks (`calendar`), starting the executions (`store::schedule`, `server::schedule`).

pub mod calendar;
mod cron;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use calendar::{Calendar, TimingError};

use crate::definition::fields::{CheckTime, Code, Fields, Problem, child};
use crate::definition::inputs::Inputs;
use crate::names::names;
use crate::queue::Priority;

/// How many schedules a document may have.
pub const MAX_IN_DOCUMENT: usize = 20;
/// How many missed ticks run at once with `CatchUp::All`. The newest ones run.
pub const MOST_CAUGHT_UP: usize = 100;
/// With `CatchUp::Skip`, a tick that is later than this counts as missed and does not run.
const GRACE: Duration = Duration::from_secs(60);
const MAX_KEY_LEN: usize = 200;
const UTC: &str = "UTC";

/// The times at which a schedule is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Timing {
    /// Repeatedly, by a cron expression in a time zone.
    Cron { cron: String, timezone: String },
    /// Once, at a time.
    At { at: Timestamp },
}

/// When to start, and with which input.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    #[serde(flatten)]
    pub timing: Timing,
    pub input: Option<Value>,
    #[serde(default)]
    pub priority: Priority,
    pub concurrency_key: Option<String>,
    #[serde(default)]
    pub overlap: Overlap,
    #[serde(default)]
    pub catch_up: CatchUp,
}

names! {
    /// What a tick does while an earlier execution of the schedule has not ended.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Overlap {
        /// The tick is skipped.
        #[default]
        Skip = "skip",
        /// One tick waits until that execution ends.
        BufferOne = "buffer_one",
        /// The tick starts another execution.
        Allow = "allow",
    }
}

names! {
    /// What happens to missed ticks.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum CatchUp {
        Skip = "skip",
        /// The newest missed tick is run.
        #[default]
        Last = "last",
        /// The newest `MOST_CAUGHT_UP` missed ticks are run.
        All = "all",
    }
}

names! {
    /// The status of a schedule.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ScheduleStatus))]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum Status {
        Active = "ACTIVE",
        Paused = "PAUSED",
        /// No tick is left, or the definition to start is gone.
        Ended = "ENDED",
    }
}

names! {
    /// The outcome of a tick.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = TickStatus))]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum TickStatus {
        Started = "STARTED",
        /// The tick waits until the execution of an earlier tick ends.
        Buffered = "BUFFERED",
        Skipped = "SKIPPED",
        /// The start was refused. A client's request for the same start would be refused for the same reason.
        Failed = "FAILED",
        /// The workspace's backlog was full.
        Refused = "REFUSED",
    }
}

/// The ticks that are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTicks {
    /// The range of missed ticks that are not run: from the first time, up to but not including the second.
    pub missed: Option<(Timestamp, Timestamp)>,
    /// The ticks to run, oldest first.
    pub run: Vec<Timestamp>,
    /// The time of the next tick; `None` if no tick is left.
    pub next_at: Option<Timestamp>,
}

/// What to do with a tick that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickDecision {
    Start,
    Buffer,
    Skip(&'static str),
}

/// Decides which of the ticks from `next_at` until now run, and which do not.
pub fn due(calendar: &Calendar, catch_up: CatchUp, next_at: Timestamp, now: Timestamp) -> DueTicks {
    let Some(last) = calendar.until(now).filter(|last| *last >= next_at) else {
        // No tick is due. If `next_at` has passed all the same, a build with other time zone data computed it.
        let moved = if next_at > now { Some(next_at) } else { calendar.after(now) };
        return DueTicks { missed: None, run: Vec::new(), next_at: moved };
    };
    let late = now.duration_since(last).unsigned_abs() > GRACE;
    let most = match catch_up {
        CatchUp::Skip if late => 0,
        CatchUp::Skip | CatchUp::Last => 1,
        CatchUp::All => MOST_CAUGHT_UP,
    };
    let before = |tick: &Timestamp| calendar.until(tick.checked_sub(Duration::from_secs(1)).ok()?);
    let back = std::iter::successors(Some(last), before);
    let mut run: Vec<Timestamp> = back.take_while(|tick| *tick >= next_at).take(most).collect();
    run.reverse();
    let after = calendar.after(now);
    let first = run.first().copied().or(after).unwrap_or(now);
    DueTicks { missed: (first > next_at).then_some((next_at, first)), run, next_at: after }
}

/// Decides what to do with a tick. `open`: an execution of the schedule has not ended. `buffered`: a tick already
/// waits for the end of that execution.
pub fn decide_tick(overlap: Overlap, open: bool, buffered: bool) -> TickDecision {
    match overlap {
        Overlap::Allow => TickDecision::Start,
        Overlap::Skip | Overlap::BufferOne if !open && !buffered => TickDecision::Start,
        Overlap::BufferOne if !buffered => TickDecision::Buffer,
        Overlap::Skip => TickDecision::Skip("an execution that this schedule started has not ended"),
        Overlap::BufferOne => TickDecision::Skip("another tick already waits for the execution that has not ended"),
    }
}

/// Returns the problems of a rule. Each problem points to the field of the rule as it is named in a document.
pub fn check(rule: &Rule) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |pointer: &str, message: String| {
        problems.push(Problem::new(Code::BadValue, pointer.to_owned(), message));
    };
    if let Err(bad) = Calendar::read(&rule.timing, Timestamp::UNIX_EPOCH) {
        let pointer = match bad {
            TimingError::Cron(_) => "/cron",
            TimingError::TimeZone => "/timezone",
            TimingError::At => "/at",
        };
        wrong(pointer, bad.to_string());
    }
    if rule.concurrency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > MAX_KEY_LEN) {
        wrong("/concurrency_key", format!("must be 1 to {MAX_KEY_LEN} bytes"));
    }
    problems
}

/// Reads `on: {schedule: […]}` of a document. The input of each schedule is checked against the workflow's inputs.
pub(crate) fn read(value: &Value, at: &str, inputs: &Inputs, problems: &mut Vec<Problem>) -> Vec<Rule> {
    let Value::Array(list) = value else {
        problems.push(Problem::new(Code::WrongType, at.to_owned(), "must be a list of schedules".to_owned()));
        return Vec::new();
    };
    if list.len() > MAX_IN_DOCUMENT {
        let message = format!("there are {} schedules, more than {MAX_IN_DOCUMENT}", list.len());
        problems.push(Problem::new(Code::TooLarge, at.to_owned(), message));
        return Vec::new();
    }
    let mut rules: Vec<Rule> = Vec::new();
    for (place, value) in list.iter().enumerate() {
        let at = child(at, &place.to_string());
        let Some(rule) = one(value, &at, problems) else { continue };
        if rules.iter().any(|known| known.timing == rule.timing) {
            let message = "is given twice with this time zone".to_owned();
            problems.push(Problem::new(Code::BadValue, child(&at, "cron"), message));
        }
        let mut found = check(&rule);
        if let Err(refused) = inputs.apply(rule.input.clone()) {
            found.extend(refused.into_iter().map(|problem| problem.below("/input")));
        }
        problems.extend(found.into_iter().map(|problem| problem.below(&at)));
        rules.push(rule);
    }
    rules
}

fn one(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Rule> {
    let known = &["cron", "timezone", "input", "priority", "concurrency_key", "overlap", "catch_up"];
    let mut fields = Fields::open(value, at, known, CheckTime::Run, problems)?;
    fields.require("cron");
    let cron = fields.text("cron");
    let timezone = fields.text("timezone").unwrap_or(UTC).to_owned();
    let priority = fields.integer("priority", 1..=5).and_then(|number| Priority::new(i16::try_from(number).ok()?).ok());
    let concurrency_key = fields.text("concurrency_key").map(str::to_owned);
    let overlap = fields.choice("overlap", &Overlap::ALL.map(|overlap| (overlap.name(), overlap)));
    let catch_up = fields.choice("catch_up", &CatchUp::ALL.map(|catch_up| (catch_up.name(), catch_up)));
    Some(Rule {
        timing: Timing::Cron { cron: cron?.to_owned(), timezone },
        input: fields.get("input").cloned(),
        priority: priority.unwrap_or_default(),
        concurrency_key,
        overlap: overlap.unwrap_or_default(),
        catch_up: catch_up.unwrap_or_default(),
    })
}
