//! What a run stores and remembers: facts gathered, one record, and the scope that templates see.
//!
//! Invariants
//! - At most one fact a node goes into a record: the last.
//! - Outputs that nothing looks at are stored and forgotten.
//! - What the database cannot hold ends the run FAILED, saying so, instead of stopping it.
//!
//! Not here: what is to be done (`super`), writing (`writer`).

use std::time::Duration;

use kernel::failure::{Class, Failure};
use kernel::plan::NodeIx;
use kernel::run::Outcome;
use kernel::{execution, node};
use serde_json::Value;
use store::run::{End, NodeFact, Record};
use tokio::time::Instant;

use super::super::Left;
use super::super::writer::{Told, size};
use super::Driver;
use crate::{ending, scope};

impl Driver {
    pub(super) fn settle(&mut self, node: NodeIx, end: node::End) {
        self.timers.remove(&node);
        let mut fact = self.fact(node, end.status());
        match self.results.remove(&node) {
            Some(Ok(done)) if end.status() == node::Status::Completed => {
                self.remember(node, &end, done.output.clone(), None);
                fact.label = done.took;
                fact.output = Some(done.output);
            }
            Some(Err(failure)) if end.status() == node::Status::Failed => {
                let failure = failure.at(self.run.key(node).clone());
                self.remember(node, &end, Value::Null, Some(&failure));
                self.failures.insert(node, failure.clone());
                fact.error = Some(failure);
            }
            _ => self.remember(node, &end, Value::Null, None),
        }
        self.note(fact);
    }

    pub(super) fn retry_later(&mut self, node: NodeIx, attempt: u32, wait: Duration) {
        let error = match self.results.remove(&node) {
            Some(Err(failure)) => Some(failure.at(self.run.key(node).clone())),
            _ => None,
        };
        self.attempts.insert(node, attempt);
        self.timers.insert(node, Instant::now() + wait);
        let fact = NodeFact { attempt, next_in: Some(wait), error, ..self.fact(node, node::Status::Retrying) };
        self.note(fact);
    }

    pub(super) fn finish(&self, outcome: Outcome) -> End {
        let failure = |node| self.failures.get(&node).cloned();
        ending::end(&outcome, &self.version, &self.scope, failure)
    }

    /// Records what happened, if anything did. Some if the run leaves this process.
    pub(super) async fn commit(&mut self) -> Option<Left> {
        let park = self.end.is_none() && self.may_park();
        if self.facts.is_empty() && self.end.is_none() && !park {
            return None;
        }
        let mut record = Record {
            execution: self.begun.execution,
            epoch: self.begun.epoch,
            facts: std::mem::take(&mut self.facts),
            end: self.end.take(),
            park,
        };
        self.gathered = 0;
        let ends = record.end.is_some();
        loop {
            let end = record.end.as_ref().map(|end| (end.outcome, end.error.as_ref().map(|failure| failure.class)));
            match self.shared.writer.record(self.process, record).await {
                None => return Some(Left::Lost),
                Some(Told::Recorded(recorded)) if !recorded.held => return Some(Left::Lost),
                Some(Told::Recorded(recorded)) if ends || recorded.ended => {
                    if let Some((outcome, class)) = end {
                        ending::counted(outcome, class);
                    }
                    return Some(Left::Ended { freed: recorded.freed });
                }
                Some(Told::Recorded(_)) => return park.then_some(Left::Parked),
                Some(Told::Refused(error, refused)) => {
                    tracing::warn!(execution_id = %self.begun.execution, error = %error, "A result cannot be stored");
                    record = unstorable(*refused);
                }
            }
        }
    }

    pub(super) fn fact(&self, node: NodeIx, status: node::Status) -> NodeFact {
        NodeFact {
            node: self.run.key(node).clone(),
            iteration: 0,
            status,
            attempt: self.attempts.get(&node).copied().unwrap_or(0),
            next_in: None,
            label: None,
            input: None,
            output: None,
            error: None,
        }
    }

    /// Keeps one fact a node: the last, with the input an earlier one brought.
    pub(super) fn note(&mut self, mut fact: NodeFact) {
        #[cfg(feature = "mutants")]
        crate::mutant::fact(&mut fact);
        if let Some(at) = self.facts.iter().position(|known| known.node == fact.node) {
            let earlier = self.facts.remove(at);
            fact.input = fact.input.or(earlier.input);
        }
        self.gathered += size(&fact);
        self.facts.push(fact);
    }

    pub(super) fn remember(&mut self, node: NodeIx, end: &node::End, output: Value, error: Option<&Failure>) {
        let key = self.run.key(node).clone();
        let kept = self.version.looked_at.contains(&key);
        let output = if kept { output } else { Value::Null };
        self.scope.nodes.insert(key, scope::seen(end.status(), output, error.filter(|_| kept)));
    }
}

/// The same record without what the database cannot hold: outputs are left out and the run ends
/// FAILED, saying so.
fn unstorable(record: Record) -> Record {
    let failure = || Failure::new(Class::UnstorableOutput, "the database cannot hold what this node produced");
    let facts = record.facts.into_iter().map(|fact| {
        let lost = fact.output.is_some();
        let status = if lost { node::Status::Failed } else { fact.status };
        let error = if lost { Some(failure().at(fact.node.clone())) } else { fact.error };
        NodeFact { status, error, input: None, output: None, ..fact }
    });
    let end = End { outcome: execution::Status::Failed, output: None, error: Some(failure()) };
    Record { facts: facts.collect(), end: Some(end), park: false, ..record }
}
