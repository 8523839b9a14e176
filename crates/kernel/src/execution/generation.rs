//! The generation of an execution: how many executions lie between it and the outside request that caused it.
//!
//!     request ──▶ 0 ──detached start──▶ 1 ──EMIT_EVENT──▶ event ──binding──▶ 2 ──▶ …
//!
//! Invariants
//! - An execution that is started from outside (API, SQL, trigger, schedule, rerun) has generation 0. An execution that
//!   another execution started detached, or by an event, has the generation of that execution plus one. A child that
//!   its parent waits for has the generation of its parent.
//! - No execution of a generation beyond the limit starts. So a workflow that starts itself again and again stops.
//! - The number is stored in the execution's trigger and in the event's metadata. `EMIT_EVENT` overwrites a number that
//!   the workflow's author set, and `POST /events` drops it. A program that inserts events by SQL can set the number,
//!   but gains nothing. Without the number the event starts generation 0; with it, a generation nearer to the limit.
//!
//! Not here: how deep a tree of children may be (`kind::workflow`). If a workflow starts executions over HTTP, they
//! count as started from outside.

use serde_json::Value;

use crate::run::failure::{Class, Failure};

/// The field of an execution's trigger that holds the generation. The field is absent for generation 0.
pub const IN_TRIGGER: &str = "generation";
/// The field of an event's metadata that holds the generation of the execution which emitted the event.
pub const IN_METADATA: &str = "forebay_generation";

/// The generation of the execution with this trigger.
pub fn of(trigger: &Value) -> u32 {
    let number = |value: &Value| value.as_u64().map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    if let Some(emitted) = trigger.pointer("/event/metadata").and_then(|metadata| number(metadata.get(IN_METADATA)?)) {
        return emitted.saturating_add(1);
    }
    trigger.get(IN_TRIGGER).and_then(number).unwrap_or(0)
}

/// The generation of an execution that an execution with this trigger starts and does not wait for. Fails if that
/// generation is beyond `most`.
pub fn next(trigger: &Value, most: u32) -> Result<u32, Failure> {
    let next = of(trigger).saturating_add(1);
    check(next, most).map(|()| next)
}

/// Fails if an execution of this generation must not start: a chain of executions that start each other would become
/// longer than `most`.
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
