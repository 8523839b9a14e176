//! The reckoning after the quiet: what was promised against what is stored.
//!
//! Invariants
//! - What an execution should have come to is computed by an undisturbed `Run` over the same
//!   answers; a disturbed one must have come to the same, node by node.
//!
//! Not here: what must hold all the time (judged where it happens).

use std::sync::Arc;

use kernel::definition::Kind;
use kernel::execution::Status;
use kernel::queue;
use kernel::run::attempts::{Fact, Order};
use kernel::run::node::End;
use kernel::run::{Effect, Event, Outcome, Run};

use super::judge::Promise;
use super::receiver::Answer;
use super::store::{Execution, Ix, MAX_ATTEMPTS, Why, execution_id};
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
    let ticket = match status {
        Status::Completed | Status::Canceled => queue::Status::Gone,
        _ => queue::Status::Failed,
    };
    if execution.ended != 1 || item.status != ticket {
        return Some((Promise::P3Once, format!("ended {} times, item {:?}", execution.ended, item.status)));
    }
    let refusals = world.remote.as_ref().and_then(|remote| remote.refusals.get(&ix).copied()).unwrap_or(0);
    if item.attempts > refusals || (execution.why == Why::Refused && refusals < MAX_ATTEMPTS) {
        return Some((Promise::P5NeverAttempts, format!("spent {} attempts on {refusals} refusals", item.attempts)));
    }
    if execution.cancel_requested && execution.why == Why::Ran && canceled_nodes(execution) {
        return Some((Promise::P3Once, format!("was canceled and is {status:?}")));
    }
    let deadly = world.receiver.deadly.contains(&ix);
    if (deadly && execution.why == Why::Ran) || (!deadly && execution.why == Why::CrashLoop) {
        return Some((Promise::P5NeverAttempts, format!("ended of {:?}, deadly: {deadly}", execution.why)));
    }
    if execution.why == Why::Ran {
        return against_the_undisturbed(world, ix);
    }
    None
}

fn canceled_nodes(execution: &Execution) -> bool {
    execution.nodes.iter().any(|row| row.end == Some(End::Canceled))
}

fn against_the_undisturbed(world: &World, ix: Ix) -> Option<(Promise, String)> {
    let execution = &world.store.executions[ix];
    let run = undisturbed(world, ix);
    let expected = match run.outcome() {
        Some(Outcome::Completed) => Status::Completed,
        _ => Status::Failed,
    };
    if execution.status != expected {
        return Some((Promise::P5NeverAttempts, format!("is {:?}, undisturbed {expected:?}", execution.status)));
    }
    for (node, row) in execution.nodes.iter().enumerate() {
        if row.end.as_ref() != run.end(node) {
            let what = format!("n{node} is {:?}, undisturbed {:?}", row.end, run.end(node));
            return Some((Promise::P5NeverAttempts, what));
        }
        let performed = world.receiver.deliveries.contains_key(&(ix, node));
        if row.end.as_ref().is_some_and(|end| *end == End::Skipped) && performed {
            return Some((Promise::P3Once, format!("n{node} was performed and is skipped")));
        }
    }
    None
}

/// The same execution in a world where nothing goes wrong but its own nodes.
fn undisturbed(world: &World, ix: Ix) -> Run {
    let plan = &world.store.executions[ix].plan;
    let (mut run, mut effects) = Run::start(Arc::clone(plan), execution_id(ix));
    while let Some(effect) = effects.pop() {
        let event = match effect {
            Effect::Node(node, Order::Perform { attempt }) if plan.node(node).kind == Kind::Delay => {
                Event::Node(node, Fact::Succeeded { attempt, took: None })
            }
            Effect::Node(node, Order::Perform { attempt }) => {
                match world.receiver.would_answer(plan, ix, node, attempt) {
                    Answer::Done(took) => Event::Node(node, Fact::Succeeded { attempt, took }),
                    Answer::Failed(failure) => Event::Node(node, Fact::Failed { attempt, failure }),
                }
            }
            Effect::Node(node, Order::Wait { attempt, .. }) => Event::Node(node, Fact::RetryDue { attempt }),
            _ => continue,
        };
        effects.extend(run.apply(event));
    }
    run
}
