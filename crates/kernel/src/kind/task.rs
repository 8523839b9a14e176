//! TASK: work that the user's own worker does.
//!
//! Invariants
//! - A failure that a worker reports counts as an attempt; a missed heartbeat of a worker does not.
//! - `activity` cannot contain templates, because its task queue must be known when the workflow is published.
//!
//! Not here: assigning tasks, leases and fences (`store::wait::task`).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::registry::Spec;
use super::schema::{any, duration, early, late, line, object};
use crate::definition::Manner;
use crate::definition::fields::Fields;
use crate::run::failure::{Class, Failure};

/// The lease of a task, if neither the node nor the worker sets one.
pub const LEASE: Duration = Duration::from_secs(60);
/// The shortest and the longest lease.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);
const LONGEST_LEASE: Duration = Duration::from_secs(60 * 60);
/// The longest name of a queue.
pub const MAX_QUEUE_LEN: usize = 128;
/// A task fails after this many workers claimed it and stopped sending heartbeats.
pub const MAX_DELIVERIES: i32 = 10;

/// The lease that a worker asked for is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be between {} and {}", SHORTEST_LEASE.as_secs(), LONGEST_LEASE.as_secs())]
pub struct InvalidLease;

/// Checks the lease that a worker asked for.
pub fn check_lease(lease: Duration) -> Result<(), InvalidLease> {
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) { Ok(()) } else { Err(InvalidLease) }
}

/// The task.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub queue: String,
    pub input: Value,
    pub lease: Duration,
    /// An activity of the user's own Temporal workers; only with the Temporal engine.
    pub activity: Option<Activity>,
}

/// An activity of the user's own Temporal workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    pub task_queue: String,
    pub name: String,
}

pub(super) const FIELDS: &[&str] = &["queue", "input", "lease", "activity"];
const ACTIVITY_FIELDS: &[&str] = &["task_queue", "type"];

/// The description of this kind.
pub(super) const SPEC: Spec =
    Spec::new("TASK", Manner::WaitsForAnswer, "Lets your own worker do the work, over HTTP or as a Temporal activity.");

/// JSON Schema of `with`.
pub fn schema() -> Value {
    let word = || line(MAX_QUEUE_LEN);
    let activity = object(&["task_queue", "type"], &[("task_queue", word()), ("type", word())]);
    let lease = "How long a worker keeps the task without a heartbeat, 1s to 1h; 60s if absent.";
    let instead = "Instead of a queue, with the Temporal engine: an activity type on a task queue that your own \
                   Temporal workers serve.";
    let mut schema = object(
        &[],
        &[
            late("queue", "The queue that workers claim it from.", word()),
            any("input", "The input for the worker."),
            late("lease", lease, duration()),
            early("activity", instead, activity),
        ],
    );
    schema["oneOf"] = json!([{ "required": ["queue"] }, { "required": ["activity"] }]);
    schema
}

/// The activity that a TASK names, before its templates are resolved.
pub fn activity(with: &Value) -> Option<Activity> {
    let text = |name: &str| with["activity"][name].as_str().map(str::to_owned);
    Some(Activity { task_queue: text("task_queue")?, name: text("type")? })
}

/// The failure of a task that no worker finished in time.
pub fn expired() -> Failure {
    Failure::new(Class::Timeout, "no worker finished the task in time")
}

/// The failure of a task whose workers missed their heartbeats too often.
pub fn abandoned() -> Failure {
    Failure::new(
        Class::ExecutionError,
        format!("{MAX_DELIVERIES} workers claimed the task and stopped sending heartbeats"),
    )
}

/// The failure that a worker reported.
pub fn failed(message: &str, retryable: bool) -> Failure {
    Failure::new(if retryable { Class::ExecutionError } else { Class::ValidationError }, message)
}

/// Is this a valid name of a task queue?
pub fn is_queue(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= MAX_QUEUE_LEN && !name.chars().any(char::is_control)
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    let activity = read_activity(fields);
    let queue = match (fields.get("queue"), fields.get("activity")) {
        (Some(_), Some(_)) => {
            fields.wrong("activity", "give either queue or activity, not both");
            None
        }
        (None, Some(_)) => activity.as_ref().map(|activity| activity.task_queue.clone()),
        _ => {
            fields.require("queue");
            let queue = fields.text("queue").map(str::to_owned);
            if queue.as_deref().is_some_and(|name| !is_queue(name)) {
                fields.wrong("queue", format!("must be one line of 1 to {MAX_QUEUE_LEN} bytes"));
            }
            queue
        }
    };
    let lease = match fields.get("lease") {
        None => Some(LEASE),
        Some(_) => fields.duration("lease", LONGEST_LEASE),
    };
    if lease.is_some_and(|lease| lease < SHORTEST_LEASE) {
        fields.wrong("lease", "is shorter than 1s");
    }
    let input = fields.get("input").cloned().unwrap_or_default();
    Some(Config { queue: queue?, input, lease: lease?, activity })
}

fn read_activity(fields: &mut Fields<'_, '_>) -> Option<Activity> {
    let value = fields.get("activity")?;
    let (at, stage) = (fields.pointer("activity"), crate::definition::fields::CheckTime::Run);
    let mut inner = Fields::open(value, &at, ACTIVITY_FIELDS, stage, fields.problems)?;
    let mut word = |name: &str| {
        inner.require(name);
        let text = inner.text(name)?;
        if !is_queue(text) || crate::expression::template::is_templated(text) {
            inner.wrong(name, format!("must be one line of 1 to {MAX_QUEUE_LEN} bytes, and no template"));
        }
        Some(text.to_owned())
    };
    let (task_queue, name) = (word("task_queue"), word("type"));
    Some(Activity { task_queue: task_queue?, name: name? })
}
