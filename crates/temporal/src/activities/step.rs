//! A step: nodes that settle without being performed, then nodes that only compute, in one commit.
//!
//! Invariants
//! - Facts are stored in the order of the orders, so that a run's nodes settle in the order in which the embedded
//!   engine's do.
//! - A node that branches, or fails, ends the step: what follows from it settles before what was ordered after it.
//! - Repeating a step after a crash is harmless: what it computes follows from stored values alone.

use std::borrow::Cow;
use std::time::Instant;

use engine::attempt;
use engine::nodes::{self, Done, Work};
use kernel::definition;
use kernel::expression::Scope;
use kernel::ids::NodeKey;
use kernel::run::each;
use kernel::run::failure::{Class, Failure};
use kernel::run::node::Status;
use serde_json::Value;
use store::batch::Fate;
use store::run::attempt::Hold;
use store::run::{NodeFact, Record, StoredNode};
use temporalio_sdk::activities::ActivityError;

use super::runs::Held;
use super::{Kit, settled};
use crate::message::{Ended, Order, Step, Stepped};

/// About the most bytes of one commit; what comes after is left for the next step.
const BYTES: usize = 8 << 20;

impl Kit {
    pub(super) async fn take_step(&self, step: Step) -> Result<Stepped, ActivityError> {
        let hold = step.hold;
        let Some(held) = self.held(hold).await? else { return Ok(Stepped::Lost) };
        let scope = self.scope_of(hold, &held, &step.orders).await?;
        let begun = self.begun(hold, &held, &step.orders).await?;
        let (mut facts, mut ended, mut bytes) = (Vec::new(), Vec::new(), 0);
        for order in step.orders {
            match order {
                Order::Settle { node, iteration, status } => {
                    let key = &held.version.plan.node(node).key;
                    let begun = begun.iter().find(|(known, row)| *known == iteration && row.node == *key);
                    facts.push(settle(key, iteration, status, begun.map(|(_, row)| row)));
                }
                Order::Compute { node, iteration } => {
                    let Some(spec) = held.spec(node, iteration) else { break };
                    let view = held.version.view(node, &scope);
                    let view = match each::index(iteration) {
                        None => view,
                        Some(index) => Cow::Owned(self.with_item(hold, &held, node, index, view.into_owned()).await?),
                    };
                    let since = Instant::now();
                    let ready = nodes::ready_apart(held.begun.workspace, &spec, &view).await;
                    let (fact, end) = compute(hold, &spec, iteration, since, ready);
                    bytes += fact.as_ref().and_then(|fact| fact.output.as_ref()).map_or(0, nodes::size);
                    let ends = !matches!(&end, Ended::Settled { status: Status::Completed, label: None, .. });
                    facts.extend(fact);
                    ended.push(end);
                    if ends || bytes > BYTES {
                        break;
                    }
                }
            }
        }
        self.store_facts(hold, facts, ended).await
    }

    /// What the nodes to be computed look at.
    async fn scope_of(&self, hold: Hold, held: &Held, orders: &[Order]) -> Result<Scope, ActivityError> {
        let computed = orders.iter().filter_map(|order| match order {
            Order::Compute { node, .. } => Some(*node),
            Order::Settle { .. } => None,
        });
        let mut looked_at: Vec<NodeKey> = computed.flat_map(|node| held.version.looked_at_by(node)).collect();
        looked_at.sort_unstable();
        looked_at.dedup();
        let mut scope = engine::scope::scope(&held.begun, &held.version);
        self.look_at(hold, &looked_at, &mut scope).await?;
        Ok(scope)
    }

    /// How nodes stand that were begun and are to be settled: they keep their attempts, and why the last one failed.
    async fn begun(&self, hold: Hold, held: &Held, orders: &[Order]) -> Result<Vec<(i32, StoredNode)>, ActivityError> {
        let begun = orders.iter().filter_map(|order| match order {
            Order::Settle { node, iteration, status } if *status != Status::Skipped => {
                Some((&held.version.plan.node(*node).key, *iteration))
            }
            _ => None,
        });
        let begun: Vec<(&NodeKey, i32)> = begun.collect();
        if begun.is_empty() {
            return Ok(Vec::new());
        }
        self.store.placed_nodes(hold.execution, &begun).await.map_err(super::again)
    }

    async fn store_facts(&self, hold: Hold, facts: Vec<NodeFact>, ended: Vec<Ended>) -> Result<Stepped, ActivityError> {
        if facts.is_empty() {
            return Ok(Stepped::Done(ended));
        }
        let record = |facts| Record { facts, ..Record::new(hold.execution, hold) };
        match self.record(hold.owner, record(facts.clone())).await? {
            Fate::Done(recorded) if recorded.held => Ok(Stepped::Done(ended)),
            Fate::Done(_) => Ok(Stepped::Lost),
            Fate::Refused(error) => {
                tracing::warn!(execution_id = %hold.execution, error = %error, "A result cannot be stored");
                let facts = facts.into_iter().map(without_output).collect();
                let ended = ended.into_iter().map(|end| match end {
                    Ended::Settled { status: Status::Completed, .. } => failed(Class::UnstorableOutput),
                    other => other,
                });
                match self.record(hold.owner, record(facts)).await? {
                    Fate::Done(recorded) if recorded.held => Ok(Stepped::Done(ended.collect())),
                    _ => Ok(Stepped::Lost),
                }
            }
        }
    }
}

/// What computing a node, or an item of a loop, came to; no fact if it cannot be done within a step.
fn compute(
    hold: Hold,
    spec: &definition::Node,
    iteration: i32,
    since: Instant,
    ready: Result<(Value, Work), Failure>,
) -> (Option<NodeFact>, Ended) {
    let result = match ready {
        Ok((_, Work::Done(done))) => nodes::storable(done),
        Ok((_, Work::Skip)) => {
            let fact = settle(&spec.key, iteration, Status::Skipped, None);
            return (Some(fact), settled(Status::Skipped, None, None));
        }
        Ok(_) => return (None, Ended::Later),
        Err(failure) => Err(failure),
    };
    let outcome = if result.is_ok() { "completed" } else { "failed" };
    attempt::measure(spec.kind, outcome, since.elapsed());
    let fact = |status| attempt::fact(&spec.key, iteration, status, 1);
    let item = u32::try_from(iteration).unwrap_or_default();
    match result {
        Ok(Done { output, took, .. }) => {
            let fact = NodeFact { label: took.clone(), output: Some(output), ..fact(Status::Completed) };
            (Some(fact), settled(Status::Completed, took, None))
        }
        Err(failure) if spec.retry.wait_after_item(&failure, 1, hold.execution, &spec.key, item).is_some() => {
            (None, Ended::Later)
        }
        Err(failure) => {
            let class = failure.class;
            let fact = NodeFact { error: Some(failure.at(spec.key.clone())), ..fact(Status::Failed) };
            (Some(fact), failed(class))
        }
    }
}

fn failed(class: Class) -> Ended {
    settled(Status::Failed, None, Some(class))
}

/// A node's end. A wait that is over produced what it always does; one that failed and is not tried again keeps why,
/// and another failure here is Temporal's.
fn settle(node: &NodeKey, iteration: i32, status: Status, begun: Option<&StoredNode>) -> NodeFact {
    let unperformed = || Failure::new(Class::ExecutionError, "Temporal could not have it performed").at(node.clone());
    let known = || begun.and_then(|row| row.error.clone());
    // An attempt that was to come is none.
    let waits = begun.is_some_and(|row| row.status == Status::Retrying && status == Status::Failed);
    let attempt = begun.map_or(0, |row| row.attempt).saturating_sub(u32::from(waits));
    let error = match status {
        Status::Failed => Some(known().unwrap_or_else(unperformed)),
        // A loop, of one of whose items that is so.
        Status::Unknown => Some(Failure::unknown().at(node.clone())),
        _ => None,
    };
    let output = (status == Status::Completed).then(|| Done::waited().output);
    NodeFact { output, error, ..attempt::fact(node, iteration, status, attempt) }
}

fn without_output(fact: NodeFact) -> NodeFact {
    if fact.status != Status::Completed {
        return fact;
    }
    let reason = Failure::new(Class::UnstorableOutput, "the database cannot hold what this node produced");
    NodeFact { status: Status::Failed, label: None, output: None, error: Some(reason.at(fact.node.clone())), ..fact }
}
