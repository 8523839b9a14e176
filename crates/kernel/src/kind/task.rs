//! TASK: work that the user's own worker does.
//!
//! Invariants
//! - A worker that falls silent costs no attempt; one that says that it failed does.
//! - `activity` is read as it stands: who serves it is known when the workflow is published.
//!
//! Not here: handing tasks out (`store::wait::task`), leases and fences (the same).

use std::time::Duration;

use serde_json::{Value, json};

use super::registry::Spec;
use super::schema::{any, duration, early, late, object};
use crate::definition::Manner;
use crate::definition::fields::{Fields, Problem};
use crate::run::failure::{Class, Failure};

/// How long a silent worker keeps a task, if neither the node nor the worker says.
pub const LEASE: Duration = Duration::from_secs(60);
/// The shortest and the longest lease.
pub const SHORTEST_LEASE: Duration = Duration::from_secs(1);
pub const LONGEST_LEASE: Duration = Duration::from_secs(60 * 60);
/// The longest name of a queue.
pub const MAX_QUEUE_LEN: usize = 128;
/// So many workers in a row may fall silent over one task.
pub const MAX_DELIVERIES: i32 = 10;

/// What to have done.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub queue: String,
    pub input: Value,
    pub lease: Duration,
    /// With the Temporal engine: a plain activity that the user's own Temporal workers serve.
    pub activity: Option<Activity>,
}

/// An activity of the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    pub task_queue: String,
    pub name: String,
}

const FIELDS: &[&str] = &["queue", "input", "lease", "activity"];
const ACTIVITY_FIELDS: &[&str] = &["task_queue", "type"];

/// What the kind says of itself.
pub(super) const SPEC: Spec = Spec::new(
    "TASK",
    Manner::Asks,
    "Has your own worker do something, over HTTP or as a Temporal activity.",
    schema,
    check,
);

/// What `with` must look like.
pub fn schema() -> Value {
    let word = || json!({ "type": "string", "minLength": 1, "maxLength": MAX_QUEUE_LEN });
    let activity = object(&["task_queue", "type"], &[("task_queue", word()), ("type", word())]);
    let mut schema = object(
        &[],
        &[
            ("queue", late("The queue that workers claim it from.", word())),
            ("input", any("What the worker is given.")),
            ("lease", late("How long a silent worker keeps it, 1s to 1h; 60s if absent.", duration())),
            (
                "activity",
                early(
                    "Instead of a queue, with the Temporal engine: an activity type on a task queue that your own \
                     Temporal workers serve.",
                    activity,
                ),
            ),
        ],
    );
    schema["oneOf"] = json!([{ "required": ["queue"] }, { "required": ["activity"] }]);
    schema
}

pub fn check(with: &Value) -> Vec<Problem> {
    super::check_with(with, FIELDS, read)
}

pub fn prepare(input: Value) -> Result<Config, Failure> {
    super::prepare_with(&input, FIELDS, read)
}

/// The activity that a TASK names, before anything of it is resolved.
pub fn activity(with: &Value) -> Option<Activity> {
    let text = |name: &str| with["activity"][name].as_str().map(str::to_owned);
    Some(Activity { task_queue: text("task_queue")?, name: text("type")? })
}

/// Nobody finished it in time.
pub fn expired() -> Failure {
    Failure::new(Class::Timeout, "no worker finished the task in time")
}

/// Workers fell silent over it too often.
pub fn abandoned() -> Failure {
    Failure::new(Class::ExecutionError, format!("{MAX_DELIVERIES} workers took the task and fell silent"))
}

/// A worker said that it failed.
pub fn failed(message: &str, retryable: bool) -> Failure {
    Failure::new(if retryable { Class::ExecutionError } else { Class::ValidationError }, message)
}

/// Is this the name of a queue?
pub fn is_queue(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= MAX_QUEUE_LEN && !name.chars().any(char::is_control)
}

fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
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
    let (at, stage) = (fields.pointer("activity"), crate::definition::fields::Stage::Run);
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
