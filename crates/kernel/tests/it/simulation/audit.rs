//! The reckoning after the quiet: what was promised against what is stored.
//!
//! Invariants
//! - What an execution should have come to is computed by an undisturbed machine over the same
//!   answers; a disturbed one must have come to the same, node by node.
//!
//! Not here: what must hold all the time (judged where it happens).

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::definition::Kind;
use kernel::execution::Status;
use kernel::orchestration::{Effect, Event, Orchestration, Target};
use kernel::queue;
use kernel::run::Outcome;
use kernel::run::attempts::AttemptEvent;
use kernel::run::node::NodeEnd;

use super::judge::Promise;
use super::machine::{child_result, kind_of, opened};
use super::receiver::Answer;
use super::store::{EndReason, Execution, Frame, Ix, MAX_ATTEMPTS, child_plan, execution_id, row_of};
use super::world::World;

pub(crate) fn settle_accounts(world: &mut World) {
    for ix in 0..world.store.executions.len() {
        let broken = audit(world, ix);
        if let Some((promise, what)) = broken {
            world.store.judge.breaks(promise, || format!("e{ix} {what}"));
        }
    }
}

fn audit(world: &World, ix: Ix) -> Option<(Promise, String)> {
    let execution = &world.store.executions[ix];
    let (status, item) = (execution.status, &execution.item);
    if !status.is_terminal() {
        return Some((Promise::P1Kept, format!("never ends: {status:?}, item {:?}", item.status)));
    }
    if item.status.holds_slot() {
        return Some((Promise::P6NoLeak, format!("is {status:?} and holds a slot: {:?}", item.status)));
    }
    let expected = match status {
        Status::Completed | Status::Canceled => queue::Status::Gone,
        _ => queue::Status::Failed,
    };
    if execution.ended != 1 || item.status != expected {
        return Some((Promise::P3Once, format!("ended {} times, item {:?}", execution.ended, item.status)));
    }
    let refusals = world.remote.as_ref().and_then(|remote| remote.refusals.get(&ix).copied()).unwrap_or(0);
    if item.attempts > refusals || (execution.why == EndReason::Refused && refusals < MAX_ATTEMPTS) {
        return Some((Promise::P5NeverAttempts, format!("spent {} attempts on {refusals} refusals", item.attempts)));
    }
    if execution.cancel_requested && execution.why == EndReason::Ran && canceled_nodes(execution) {
        return Some((Promise::P3Once, format!("was canceled and is {status:?}")));
    }
    let deadly = world.receiver.deadly.contains(&ix);
    if (deadly && execution.why == EndReason::Ran) || (!deadly && execution.why == EndReason::CrashLoop) {
        return Some((Promise::P5NeverAttempts, format!("ended of {:?}, deadly: {deadly}", execution.why)));
    }
    if execution.why == EndReason::Ran {
        return against_the_undisturbed(world, ix);
    }
    None
}

fn canceled_nodes(execution: &Execution) -> bool {
    execution.nodes.iter().any(|row| row.end == Some(NodeEnd::Canceled))
}

fn against_the_undisturbed(world: &World, ix: Ix) -> Option<(Promise, String)> {
    let execution = &world.store.executions[ix];
    let mut ends = BTreeMap::new();
    let expected = match undisturbed(world, ix, None, &mut ends) {
        Outcome::Completed => Status::Completed,
        _ => Status::Failed,
    };
    if execution.status != expected {
        return Some((Promise::P5NeverAttempts, format!("is {:?}, undisturbed {expected:?}", execution.status)));
    }
    for (row, stored) in execution.nodes.iter().enumerate() {
        if stored.end.as_ref() != ends.get(&row) {
            let what = format!("n{row} is {:?}, undisturbed {:?}", stored.end, ends.get(&row));
            return Some((Promise::P5NeverAttempts, what));
        }
        let performed = world.receiver.deliveries.contains_key(&(ix, row));
        if stored.end.as_ref().is_some_and(|end| *end == NodeEnd::Skipped) && performed {
            return Some((Promise::P3Once, format!("n{row} was performed and is skipped")));
        }
    }
    None
}

/// The same execution, or the child of one of its nodes, in a world where nothing goes wrong but its own nodes: how
/// each row ends.
fn undisturbed(world: &World, ix: Ix, frame: Frame, ends: &mut BTreeMap<usize, NodeEnd>) -> Outcome {
    let root = &world.store.executions[ix].plan;
    let plan = if frame.is_none() { Arc::clone(root) } else { Arc::new(child_plan()) };
    let (mut run, mut effects) = Orchestration::resume(Arc::clone(&plan), execution_id(ix), None, []);
    let mut outcome = Outcome::Stalled;
    while let Some(effect) = effects.pop() {
        let event = match effect {
            Effect::Settle { at, end } => {
                ends.insert(row_of(root, frame, at), end);
                continue;
            }
            Effect::Finish(end) => {
                outcome = end;
                continue;
            }
            Effect::Perform { at, attempt } => match kind_of(&plan, frame, at) {
                Kind::ForEach => opened(&plan, ix, at.node, Vec::new()),
                Kind::Delay | Kind::WaitForEvent => Event::Attempt(at, AttemptEvent::Succeeded { attempt, took: None }),
                Kind::Workflow => {
                    let completed = undisturbed(world, ix, Some(at.node), ends) == Outcome::Completed;
                    Event::Attempt(at, child_result(attempt, completed))
                }
                _ => match world.receiver.would_answer(root, ix, row_of(root, frame, at), attempt) {
                    Answer::Done(took) => Event::Attempt(at, AttemptEvent::Succeeded { attempt, took }),
                    Answer::Failed(failure) => Event::Attempt(at, AttemptEvent::Failed { attempt, failure }),
                },
            },
            Effect::Wait { at, .. } => Event::Due { at },
            Effect::Collect { node, .. } => {
                Event::Attempt(Target::node(node), AttemptEvent::Succeeded { attempt: 1, took: None })
            }
            Effect::CheckWait { .. } | Effect::Abort { .. } | Effect::Find { .. } | Effect::StopChild { .. } => {
                continue;
            }
        };
        effects.extend(run.apply(event));
    }
    outcome
}
