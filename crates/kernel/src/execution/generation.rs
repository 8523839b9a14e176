//! How many executions lie between an execution and the request from outside that it goes back to.
//!
//!     request ──▶ 0 ──detached start──▶ 1 ──EMIT_EVENT──▶ event ──binding──▶ 2 ──▶ …
//!
//! Invariants
//! - A start from outside (API, SQL, hook, schedule, rerun) is generation 0. A detached start, and an execution that an
//!   event of another execution started, is one more. A child that its parent waits for is of the parent's generation.
//! - Nothing of a generation beyond the limit starts, so a workflow that starts itself ends by itself.
//! - The number is in the execution's trigger and in the event's metadata. EMIT_EVENT sets it over what its author
//!   wrote, and `POST /events` drops it. A program that inserts events by SQL can write it: it only brings its own
//!   event nearer to the limit, because without the number such an event is of no execution, and what it starts is
//!   generation 0.
//!
//! Not here: how deep a tree of children may be (`kind::workflow`), starts that a workflow asks for over HTTP, which
//! come from outside.

use serde_json::Value;

use crate::run::failure::{Class, Failure};

/// Where an execution's trigger holds it, if it is not 0.
pub const IN_TRIGGER: &str = "generation";
/// Where an event's metadata holds that of the execution which emitted it.
pub const IN_METADATA: &str = "forebay_generation";

/// The generation of the execution with this trigger.
pub fn of(trigger: &Value) -> u32 {
    let number = |value: &Value| value.as_u64().map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    if let Some(emitted) = trigger.pointer("/event/metadata").and_then(|metadata| number(metadata.get(IN_METADATA)?)) {
        return emitted.saturating_add(1);
    }
    trigger.get(IN_TRIGGER).and_then(number).unwrap_or(0)
}

/// The generation of what an execution with this trigger starts and does not wait for.
pub fn next(trigger: &Value, most: u32) -> Result<u32, Failure> {
    let next = of(trigger).saturating_add(1);
    check(next, most).map(|()| next)
}

/// May an execution of this generation start?
pub fn check(generation: u32, most: u32) -> Result<(), Failure> {
    if generation <= most {
        return Ok(());
    }
    let message = format!(
        "this would be generation {generation} of executions that start each other; at most {most} are allowed \
         (workflow.max_generations)"
    );
    Err(Failure::new(Class::GenerationLimit, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_generation_is_counted_from_the_request_that_came_from_outside() {
        for (trigger, expected) in [
            (json!({ "type": "api", "actor": "root" }), 0),
            (json!({ "type": "workflow", "generation": 3 }), 3),
            (json!({ "type": "event", "event": { "metadata": {} } }), 0),
            (json!({ "type": "event", "event": { "metadata": { "forebay_generation": 4 } } }), 5),
            (json!({ "type": "event", "event": { "metadata": { "forebay_generation": u64::MAX } } }), u32::MAX),
            (json!({ "type": "event", "event": { "metadata": { "forebay_generation": "x" } } }), 0),
            (Value::Null, 0),
        ] {
            assert_eq!(of(&trigger), expected, "{trigger}");
        }
        assert_eq!(next(&json!({ "generation": 31 }), 32), Ok(32));
        let refused = next(&json!({ "generation": 32 }), 32).expect_err("one too many");
        assert_eq!(refused.class, Class::GenerationLimit);
        assert!(!refused.is_retryable());
        assert!(refused.message.contains("33") && refused.message.contains("workflow.max_generations"));
    }
}
