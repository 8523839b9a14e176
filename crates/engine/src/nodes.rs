//! Performs one node: the work behind each kind.
//!
//! Invariants
//! - The light kinds only compute: their work is done while the node is prepared. The work of the other kinds is a
//!   future. It may be dropped at any time, which stops the work.
//! - A failure is classified where it happens and never wrapped again. A panic is a failure too, on every engine.
//! - Preparing a node uses no secrets, so the input that is stored contains none.
//!
//! Each kind that computes or calls has a file of its own below, and one line in `work`.
//!
//! Not here: what a kind's configuration means (`kernel::kind`), retries (`kernel::run`).

pub mod call;
mod condition;
mod emit_event;
mod fail;
mod http_request;
mod log;
mod switch;
mod transform;

use std::panic::AssertUnwindSafe;

use kernel::definition;
use kernel::expression::{self, Scope};
use kernel::ids::{Label, WorkspaceId};
use kernel::kind::{self, Config};
use kernel::run::failure::Failure;
use serde_json::{Value, json};

use crate::compute;
use call::CallBuilder;
use emit_event::EmitEvent;
use http_request::HttpRequest;

pub use http_request::timeout;

/// What a node produced.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeOutput {
    pub output: Value,
    /// The branch that the node chose, if it branches.
    pub label: Option<Label>,
    /// True if the full output is already stored; `output` then holds only the part that later nodes read.
    pub stored: bool,
}

impl NodeOutput {
    /// The output of a delay that is over: an empty object.
    pub fn of_wait() -> NodeOutput {
        NodeOutput::new(json!({}))
    }

    /// The output of a node that chose a branch.
    fn branch(label: Label) -> NodeOutput {
        NodeOutput { output: json!({ "branch": label.as_str() }), label: Some(label), stored: false }
    }

    /// The output of a node that does not branch.
    pub fn new(output: Value) -> NodeOutput {
        NodeOutput { output, label: None, stored: false }
    }

    /// The output of a loop, reduced to the parts that later nodes read. The full output is already stored.
    pub fn already_stored(output: Value) -> NodeOutput {
        NodeOutput { output, label: None, stored: true }
    }
}

/// The work that remains after a node's input was resolved: none for light kinds (`Done`), else the kind's own work.
#[derive(Debug)]
pub enum Work {
    Done(NodeOutput),
    Call(CallBuilder),
    Delay(kind::delay::Config),
    Workflow(kind::workflow::Config),
    ForEach(kind::for_each::Config),
    Wait(kind::wait_for_event::Config),
    Task(kind::task::Config),
    /// The node is skipped, because its own condition (`if`) is false.
    Skip,
}

/// Prepares a node: resolves every template of its input and says what remains to be done. A panic becomes a failure of
/// the node.
pub fn prepare(spec: &definition::Node, scope: &Scope) -> Result<(Value, Work), Failure> {
    let prepared = std::panic::catch_unwind(AssertUnwindSafe(|| resolve_and_prepare(spec, scope)));
    prepared.unwrap_or_else(|_| Err(panicked(spec.key.as_str())))
}

/// The failure of a node whose configuration is for another kind.
pub fn of_another_kind() -> Failure {
    Failure::bug("the configuration is for another node kind")
}

/// The failure of a node whose work panicked.
fn panicked(node: &str) -> Failure {
    tracing::error!(node, "Node failed: its code panicked");
    Failure::panicked()
}

fn resolve_and_prepare(spec: &definition::Node, scope: &Scope) -> Result<(Value, Work), Failure> {
    if !kind::may_start(spec, scope)? {
        return Ok((Value::Null, Work::Skip));
    }
    let input = kind::resolve(spec.kind, &spec.with, scope)?;
    let work = work(kind::prepare(spec.kind, &input)?, scope)?;
    Ok((input, work))
}

/// True if [`prepare`] may take long for this node. It then runs on a separate thread (`compute`).
pub fn may_take_long(spec: &definition::Node) -> bool {
    spec.condition.as_deref().is_some_and(expression::may_take_long) || has_long_expression(&spec.with)
}

/// True if a text inside the value holds an expression that may take long.
pub(crate) fn has_long_expression(value: &Value) -> bool {
    match value {
        Value::String(text) => expression::may_take_long(text),
        Value::Array(items) => items.iter().any(has_long_expression),
        Value::Object(fields) => fields.values().any(has_long_expression),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Like [`prepare`], but on a separate thread if it may take long.
pub async fn prepare_on_thread(
    workspace: WorkspaceId,
    spec: &definition::Node,
    scope: &Scope,
) -> Result<(Value, Work), Failure> {
    if !may_take_long(spec) {
        return prepare(spec, scope);
    }
    let (spec, scope) = (spec.clone(), scope.clone());
    compute::run(workspace, move || prepare(&spec, &scope)).await
}

/// Does the work that completes immediately, and returns the work that does not. Each kind has one line.
pub fn work(config: Config, scope: &Scope) -> Result<Work, Failure> {
    Ok(match config {
        Config::HttpRequest(config) => Work::Call(CallBuilder::new(|caller| HttpRequest::new(config, caller))),
        Config::EmitEvent(config) => Work::Call(CallBuilder::new(|caller| EmitEvent::new(config, caller))),
        Config::Delay(config) => Work::Delay(config),
        Config::Condition(config) => Work::Done(condition::compute(&config, scope)?),
        Config::Switch(config) => Work::Done(switch::compute(config, scope)?),
        Config::Transform(config) => Work::Done(transform::compute(config)),
        Config::Log(config) => Work::Done(log::compute(config)),
        Config::Fail(config) => Work::Done(fail::compute(config)?),
        Config::Workflow(config) => Work::Workflow(config),
        Config::ForEach(config) => Work::ForEach(config),
        Config::WaitForEvent(config) => Work::Wait(config),
        Config::Task(config) => Work::Task(config),
    })
}

/// A node whose configuration contains this text panics. Only tests can use it; release builds do not contain it.
#[cfg(feature = "test-engine")]
pub const PANIC: &str = "forebay-test-panic";

#[cfg(feature = "test-engine")]
fn panic_on_marker(text: &str) {
    assert!(!text.contains(PANIC), "a test made this node panic");
}

/// The approximate size of a value as text, in bytes. Good enough to bound collected outputs.
pub fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 12,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + size(value) + 4).sum::<usize>() + 2,
    }
}
