//! What a run stores and remembers: facts gathered, one record a frame, and the scope that templates see.
//!
//! Invariants
//! - At most one fact a node and iteration goes into a record: the last.
//! - The records of a tree go together and are awaited together; the root parks only when nothing else is to be stored.
//! - Outputs that nothing looks at are stored and forgotten.
//! - What the database cannot hold ends its execution FAILED, saying so, instead of stopping it.
//!
//! Not here: what is to be done (`super`), writing (`writer`).

use std::time::Duration;

use futures_util::future::join_all;
use kernel::run::Outcome;
use kernel::run::failure::{Class, Failure};
use kernel::run::node;
use serde_json::Value;
use store::run::child::Spawned;
use store::run::{End, NodeFact, Record};
use tokio::time::Instant;

use super::frame::{At, FrameIx, ROOT};
use super::timers::Due;
use super::{Driver, frame};
use crate::attempt::until_answered;
use crate::embedded::writer::{Told, Writer};
use crate::embedded::{Left, ProcessId};
use crate::ending;

/// What became of a frame's record.
enum Written {
    Stored,
    /// It ended so; whose slot that freed.
    Ended(Option<End>, Left),
    Lost,
}

impl Driver {
    /// Records a node's end, or an item's, which is forgotten here.
    pub(super) fn settle(&mut self, at: At, end: node::End) {
        self.timers.remove(Due::Node(at));
        self.close_loop(at, &end);
        let frame = self.frame(at.frame);
        let mut fact = frame.fact(at, end.status());
        let key = frame.key(at).clone();
        let (mut seen, mut failure) = (Value::Null, None);
        match (frame.results.remove(&at.target()), end.status()) {
            (Some(Ok(done)), node::Status::Completed) => {
                fact.label = done.took;
                if done.stored {
                    seen = done.output;
                } else {
                    if at.iteration == 0 && frame.is_looked_at(at.node) {
                        seen = done.output.clone();
                    }
                    fact.output = Some(done.output);
                }
            }
            (Some(Err(why)), node::Status::Failed) => failure = Some(why.at(key)),
            (result, node::Status::Unknown) => {
                failure = Some(result.and_then(Result::err).unwrap_or_else(Failure::unknown).at(key));
            }
            _ => {}
        }
        if at.iteration == 0 {
            frame.remember(at.node, &end, seen, failure.as_ref());
            frame.failures.extend(failure.clone().map(|failure| (at.node, failure)));
        } else {
            frame.forget(at);
        }
        fact.error = failure;
        self.note(at.frame, fact);
    }

    /// A loop that ended is no longer in flight. The span of a stopped or lost loop is closed here.
    fn close_loop(&mut self, at: At, end: &node::End) {
        if at.iteration == 0 && self.frame(at.frame).loops.remove(&at.node).is_some() {
            self.tell(at, if *end == node::End::Canceled { "canceled" } else { "failed" }, None);
        }
    }

    pub(super) fn retry_later(&mut self, at: At, attempt: u32, wait: Duration) {
        let frame = self.frame(at.frame);
        let error = match frame.results.remove(&at.target()) {
            Some(Err(failure)) => Some(failure.at(frame.key(at).clone())),
            _ => None,
        };
        frame.attempted(at, attempt);
        let fact = NodeFact { attempt, next_in: Some(wait), error, ..frame.fact(at, node::Status::Retrying) };
        self.timers.set(Due::Node(at), Instant::now() + wait);
        self.note(at.frame, fact);
    }

    pub(super) async fn finish(&mut self, ix: FrameIx, outcome: &Outcome) {
        let frame = frame(&mut self.frames, ix);
        let failure = |node| frame.failures.get(&node).cloned();
        let workspace = frame.begun.workspace;
        frame.end = Some(ending::end(outcome, workspace, &frame.version, &frame.scope, failure).await);
        self.dirty.insert(ix);
    }

    pub(super) fn note(&mut self, ix: FrameIx, fact: NodeFact) {
        self.gathered += frame(&mut self.frames, ix).note(fact);
        self.facts += 1;
        self.dirty.insert(ix);
    }

    /// Records what happened, if anything did. Some if the run leaves this process.
    pub(super) async fn commit(&mut self) -> Option<Left> {
        let mut records = Vec::new();
        for ix in std::mem::take(&mut self.dirty) {
            let hold = self.hold;
            records.extend(self.frame(ix).record(hold).map(|record| (ix, record)));
        }
        (self.gathered, self.facts) = (0, 0);
        let ends = records.iter().any(|(_, record)| record.end.is_some());
        let below = records.iter().any(|(ix, _)| *ix != ROOT);
        let park = self.may_park().filter(|_| !ends);
        if below || park.is_none() {
            if let Some(left) = self.write(records).await {
                return Some(left);
            }
            // A child's end may be news for its node.
            let park = park.filter(|_| self.orders.is_empty() && self.ready.is_empty())?;
            return self.park(Vec::new(), park).await;
        }
        self.park(records, park?).await
    }

    /// Records what the root did last, and that nobody needs to hold it.
    async fn park(&mut self, mut records: Vec<(FrameIx, Record)>, park: Duration) -> Option<Left> {
        if records.is_empty() {
            records.push((ROOT, Record::new(self.hold.execution, self.hold)));
        }
        for (_, record) in &mut records {
            record.park = Some(park);
        }
        self.write(records).await.or(Some(Left::Parked))
    }

    /// Writes records together. Some if the run leaves this process.
    async fn write(&mut self, records: Vec<(FrameIx, Record)>) -> Option<Left> {
        let (writer, process) = (self.shared.writer.clone(), self.process);
        let writes = records.into_iter().map(|(ix, record)| {
            let writer = writer.clone();
            async move { (ix, write_one(&writer, process, ix, record).await) }
        });
        for (ix, written) in join_all(writes).await {
            match written {
                Written::Stored => {}
                Written::Lost if ix != ROOT => match self.stored_end(ix).await {
                    Some(end) => self.frame_ended(ix, end),
                    None => return Some(Left::Lost),
                },
                Written::Lost => return Some(Left::Lost),
                Written::Ended(_, left) if ix == ROOT => return Some(left),
                Written::Ended(Some(end), _) => self.frame_ended(ix, end),
                Written::Ended(None, _) => return Some(Left::Lost),
            }
        }
        None
    }

    /// How a child ended whose record was refused: the reply to an earlier try of it may have been lost. None if the
    /// run is another's.
    async fn stored_end(&mut self, ix: FrameIx) -> Option<End> {
        let at = self.frames.get(&ix)?.parent?;
        let frame = self.frame(at.frame);
        let place = frame.place(at, frame.attempt(at).unwrap_or(1));
        let (store, hold) = (self.shared.store.clone(), self.hold);
        match until_answered(|| store.find_child(hold, &place)).await {
            Ok(Some(Spawned::Ended { end, .. })) => Some(end),
            _ => None,
        }
    }
}

/// Writes one record, or what can be stored of it.
async fn write_one(writer: &Writer, process: ProcessId, ix: FrameIx, mut record: Record) -> Written {
    loop {
        let (execution, ends) = (record.execution, record.end.is_some());
        let class = record.end.as_ref().map(|end| (end.outcome, end.error.as_ref().map(|failure| failure.class)));
        // A child's end is passed on to its node.
        let end = record.end.clone().filter(|_| ix != ROOT);
        match writer.record(process, record).await {
            None => return Written::Lost,
            Some(Told::Recorded(recorded)) if !recorded.held => return Written::Lost,
            Some(Told::Recorded(recorded)) if ends || recorded.ended => {
                if let Some((outcome, class)) = class.filter(|_| ix == ROOT) {
                    ending::counted(outcome, class);
                }
                return Written::Ended(end, Left::Ended { freed: recorded.freed });
            }
            Some(Told::Recorded(_)) => return Written::Stored,
            Some(Told::Refused(error, refused)) => {
                tracing::warn!(execution_id = %execution, error = %error, "A result cannot be stored");
                record = unstorable(*refused);
            }
        }
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
    Record { facts: facts.collect(), end: Some(ending::failed(failure())), park: None, ..record }
}
