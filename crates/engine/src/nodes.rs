//! Performing one node: the work behind each kind.
//!
//! Invariants
//! - Light kinds only compute, at once and here; the others are futures that may be dropped at any
//!   time, and dropping one stops its work.
//! - A failure is classified where it happens and never re-wrapped. A panic is one, on every engine.
//! - No secret is at hand when a node is made ready: what is stored as its input has none.
//!
//! Not here: what a kind's configuration means (`kernel::kind`), retries (`kernel::run`).

pub mod call;
mod emit_event;
mod http_request;

use std::panic::AssertUnwindSafe;

use kernel::definition;
use kernel::expression::{self, Scope};
use kernel::ids::{Label, WorkspaceId};
use kernel::kind::{self, Config};
use kernel::run::failure::{Class, Failure};
use serde_json::{Value, json};

use crate::compute;
use call::Make;
use emit_event::EmitEvent;
use http_request::HttpRequest;

pub use http_request::timeout;

/// What a node produced.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    pub output: Value,
    pub took: Option<Label>,
    /// The output is stored already, and this is what is looked at of it.
    pub stored: bool,
}

impl Done {
    /// What a wait that is over produced.
    pub fn waited() -> Done {
        Done::plain(json!({}))
    }

    /// What a node that branched produced.
    fn took(label: Label) -> Done {
        Done { output: json!({ "branch": label.as_str() }), took: Some(label), stored: false }
    }

    /// What a node that does not branch produced.
    pub fn plain(output: Value) -> Done {
        Done { output, took: None, stored: false }
    }

    /// What a loop produced, as far as it is looked at: all of it is stored.
    pub fn gathered(output: Value) -> Done {
        Done { output, took: None, stored: true }
    }
}

/// What is left to do of a node that only computes: nothing, or the other kinds' own work.
#[derive(Debug)]
pub enum Work {
    Done(Done),
    Call(Make),
    Delay(kind::delay::Config),
    Workflow(kind::workflow::Config),
    ForEach(kind::for_each::Config),
    Wait(kind::wait_for_event::Config),
    Task(kind::task::Config),
    /// Nothing at all: the node's own condition does not hold.
    Skip,
}

/// Makes a node ready: its input with every template resolved, and what is left to do. A panic is a failure of the
/// node.
pub fn ready(spec: &definition::Node, scope: &Scope) -> Result<(Value, Work), Failure> {
    let made = std::panic::catch_unwind(AssertUnwindSafe(|| make_ready(spec, scope)));
    made.unwrap_or_else(|_| Err(panicked(spec.key.as_str())))
}

/// What becomes of a node whose work panicked.
fn panicked(node: &str) -> Failure {
    tracing::error!(node, "A node panicked");
    Failure::panicked()
}

fn make_ready(spec: &definition::Node, scope: &Scope) -> Result<(Value, Work), Failure> {
    if !kind::may_start(spec, scope)? {
        return Ok((Value::Null, Work::Skip));
    }
    let input = kind::resolve(spec.kind, &spec.with, scope)?;
    let work = work(kind::prepare(spec.kind, input.clone())?, scope)?;
    Ok((input, work))
}

/// May [`ready`] take long for this node? Then it is computed apart (`compute`).
pub fn may_take_long(spec: &definition::Node) -> bool {
    spec.condition.as_deref().is_some_and(expression::may_take_long) || texts(&spec.with)
}

/// Does a text in here hold an expression that may take long?
pub(crate) fn texts(value: &Value) -> bool {
    match value {
        Value::String(text) => expression::may_take_long(text),
        Value::Array(items) => items.iter().any(texts),
        Value::Object(fields) => fields.values().any(texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// [`ready`], apart from the reactor's threads where it may take long.
pub async fn ready_apart(
    workspace: WorkspaceId,
    spec: &definition::Node,
    scope: &Scope,
) -> Result<(Value, Work), Failure> {
    if !may_take_long(spec) {
        return ready(spec, scope);
    }
    let (spec, scope) = (spec.clone(), scope.clone());
    compute::run(workspace, move || ready(&spec, &scope)).await
}

/// Does what can be done at once, and says what cannot.
pub fn work(config: Config, scope: &Scope) -> Result<Work, Failure> {
    Ok(match config {
        Config::HttpRequest(config) => Work::Call(Make::new(|caller| HttpRequest::new(config, caller))),
        Config::EmitEvent(config) => Work::Call(Make::new(|caller| EmitEvent::new(config, caller))),
        Config::Delay(config) => Work::Delay(config),
        Config::Condition(config) => {
            let took = kind::condition::decide(&config.expression, scope)?;
            Work::Done(Done::took(took))
        }
        Config::Switch(config) => Work::Done(Done::took(config.decide(scope)?)),
        Config::Transform(config) => Work::Done(Done::plain(config.value)),
        Config::Log(config) => {
            #[cfg(feature = "test-engine")]
            panic_if_told(&config.message);
            let output = json!({ "level": config.level, "message": config.message, "data": config.data });
            Work::Done(Done::plain(output))
        }
        Config::Fail(config) => return Err(config.failure()),
        Config::Workflow(config) => Work::Workflow(config),
        Config::ForEach(config) => Work::ForEach(config),
        Config::WaitForEvent(config) => Work::Wait(config),
        Config::Task(config) => Work::Task(config),
    })
}

/// Whatever is told these words breaks off: what a test does to a node, and no release can.
#[cfg(feature = "test-engine")]
pub const PANIC: &str = "forebay-test-panic";

#[cfg(feature = "test-engine")]
fn panic_if_told(words: &str) {
    assert!(!words.contains(PANIC), "a test told this node to panic");
}

/// The same result, or the failure that it cannot be stored.
pub fn storable(done: Done) -> Result<Done, Failure> {
    match is_storable(&done.output) {
        true => Ok(done),
        false => Err(Failure::new(Class::UnstorableOutput, "the output holds a NUL character, which cannot be stored")),
    }
}

/// Can the database hold this value? A NUL in a text or a key cannot be stored as JSON.
pub fn is_storable(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.contains('\0'),
        Value::Array(items) => items.iter().all(is_storable),
        Value::Object(fields) => fields.iter().all(|(key, value)| !key.contains('\0') && is_storable(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// About how many bytes a value takes as text; enough to bound what is gathered.
pub fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 12,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + size(value) + 4).sum::<usize>() + 2,
    }
}
