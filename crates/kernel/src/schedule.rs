//! When a workflow starts by itself: its times, the ticks that are run, and what becomes of the others.
//!
//!     ACTIVE ◀──pause, resume──▶ PAUSED
//!        │ └─────────┬───────────┘ ▲
//!        └──end──▶ ENDED ──change──┘ (to ACTIVE)
//!
//! Invariants
//! - Ticks are looked at in order, each once: the next time only moves forward.
//! - However long nobody looked, one look runs at most `MOST_CAUGHT_UP` ticks.
//! - Whether a tick starts depends on what the schedule itself started before, and on nothing else.
//!
//! Not here: when the ticks are (`calendar`), carrying it out (`store::schedule`, `server::schedule`).

pub mod calendar;
mod cron;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use calendar::{Bad, Calendar};

use crate::definition::fields::{Code, Fields, Problem, Stage, child};
use crate::definition::inputs::Inputs;
use crate::queue::Priority;

/// How many schedules a document may have.
pub const MAX_IN_DOCUMENT: usize = 20;
/// How many missed ticks are run at once with `all`: the newest.
pub const MOST_CAUGHT_UP: usize = 100;
/// A tick that is looked at later than this was missed.
const GRACE: Duration = Duration::from_secs(60);
const MAX_KEY_LEN: usize = 200;
const UTC: &str = "UTC";

/// When.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Timing {
    /// Again and again.
    Cron { cron: String, timezone: String },
    /// Once.
    At { at: Timestamp },
}

/// When to start, and what with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    #[serde(flatten)]
    pub timing: Timing,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    #[serde(default)]
    pub priority: Priority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    #[serde(default)]
    pub overlap: Overlap,
    #[serde(default)]
    pub catch_up: CatchUp,
}

/// What a tick does while an execution that the schedule started before still waits or runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Nothing.
    #[default]
    Skip,
    /// One tick waits for its end.
    BufferOne,
    /// It starts all the same.
    Allow,
}

/// What becomes of ticks that were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    Skip,
    /// The last of them is run.
    #[default]
    Last,
    /// All of them, up to a bound.
    All,
}

/// How a schedule stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ScheduleStatus))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    Active,
    Paused,
    /// It has no tick to come, or nothing to start.
    Ended,
}

/// What became of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = TickStatus))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TickStatus {
    Started,
    /// It waits for the end of an earlier one.
    Buffered,
    Skipped,
    /// It could not be started: what a start would have been told.
    Failed,
    /// The workspace's backlog was full.
    Refused,
}

/// What is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Ticks that are not run: from the first of them until before this time.
    pub missed: Option<(Timestamp, Timestamp)>,
    /// Ticks to run, in order.
    pub run: Vec<Timestamp>,
    /// The next tick; none if there is none.
    pub next_at: Option<Timestamp>,
}

/// What a tick that is to run meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Start,
    Buffer,
    Skip(&'static str),
}

/// Which ticks from `next_at` on are to run now.
pub fn due(calendar: &Calendar, catch_up: CatchUp, next_at: Timestamp, now: Timestamp) -> Due {
    let Some(last) = calendar.until(now).filter(|last| *last >= next_at) else {
        // A new build may know better when the tick is.
        let moved = if next_at > now { Some(next_at) } else { calendar.after(now) };
        return Due { missed: None, run: Vec::new(), next_at: moved };
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
    Due { missed: (first > next_at).then_some((next_at, first)), run, next_at: after }
}

/// What a tick meets: `open` says that an execution of the schedule has not ended, `buffered` that a tick waits for
/// that.
pub fn meet(overlap: Overlap, open: bool, buffered: bool) -> Fate {
    match overlap {
        Overlap::Allow => Fate::Start,
        Overlap::Skip | Overlap::BufferOne if !open && !buffered => Fate::Start,
        Overlap::BufferOne if !buffered => Fate::Buffer,
        Overlap::Skip => Fate::Skip("an execution that this schedule started has not ended"),
        Overlap::BufferOne => Fate::Skip("a tick waits already for the execution that has not ended"),
    }
}

/// What is wrong with a rule; pointers are those of its fields in a document.
pub fn check(rule: &Rule) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |pointer: &str, message: String| {
        problems.push(Problem::new(Code::BadValue, pointer.to_owned(), message));
    };
    if let Err(bad) = Calendar::read(&rule.timing, Timestamp::UNIX_EPOCH) {
        let pointer = match bad {
            Bad::Cron(_) => "/cron",
            Bad::Zone => "/timezone",
            Bad::At => "/at",
        };
        wrong(pointer, bad.to_string());
    }
    if rule.concurrency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > MAX_KEY_LEN) {
        wrong("/concurrency_key", format!("must be 1 to {MAX_KEY_LEN} bytes"));
    }
    problems
}

/// Reads `on: {schedule: […]}` of a document; inputs are judged by what the document declares.
pub(crate) fn read(value: &Value, at: &str, inputs: &Inputs, problems: &mut Vec<Problem>) -> Vec<Rule> {
    let Value::Array(list) = value else {
        problems.push(Problem::new(Code::WrongType, at.to_owned(), "must be a list of schedules".to_owned()));
        return Vec::new();
    };
    if list.len() > MAX_IN_DOCUMENT {
        let told = format!("there are {} schedules, more than {MAX_IN_DOCUMENT}", list.len());
        problems.push(Problem::new(Code::TooLarge, at.to_owned(), told));
        return Vec::new();
    }
    let mut rules: Vec<Rule> = Vec::new();
    for (place, value) in list.iter().enumerate() {
        let at = child(at, &place.to_string());
        let Some(rule) = one(value, &at, problems) else { continue };
        if rules.iter().any(|known| known.timing == rule.timing) {
            let told = "is there already with this time zone".to_owned();
            problems.push(Problem::new(Code::BadValue, child(&at, "cron"), told));
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
    let mut fields = Fields::open(value, at, known, Stage::Run, problems)?;
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

/// The names of values as stored: what serde calls them.
macro_rules! names {
    ($($type:ident { $($variant:ident => $name:literal),* })*) => {
        $(impl $type {
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];

            /// The name as stored and shown.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name),* }
            }

            pub fn parse(text: &str) -> Option<$type> {
                $type::ALL.into_iter().find(|known| known.name() == text)
            }
        })*
    };
}

names! {
    Overlap { Skip => "skip", BufferOne => "buffer_one", Allow => "allow" }
    CatchUp { Skip => "skip", Last => "last", All => "all" }
    Status { Active => "ACTIVE", Paused => "PAUSED", Ended => "ENDED" }
    TickStatus { Started => "STARTED", Buffered => "BUFFERED", Skipped => "SKIPPED", Failed => "FAILED",
        Refused => "REFUSED" }
}
