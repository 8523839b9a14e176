//! Builds the records of a run from its facts, and updates the scope that templates see.
//!
//! Invariants
//! - A record contains at most one fact per node and iteration: the last.
//! - The records of a tree are written together and awaited together. The root parks only when nothing else is left to
//!   store.
//! - Outputs that no expression reads are stored and not kept in memory.
//! - If the database refuses a value, its node fails, or the execution if it is the execution's output. As after a
//!   crash, the run is then resumed from its rows: calls in flight are made again.
//!
//! Not here: carrying out effects (`super`), writing (`writer`).

use std::time::Duration;

use futures_util::future::join_all;
use kernel::ids::WorkspaceId;
use kernel::run::Outcome;
use kernel::run::failure::Failure;
use kernel::run::node;
use serde_json::Value;
use store::run::child::ChildState;
use store::run::{End, NodeFact, Record};
use tokio::time::Instant;

use super::frame::{FrameIx, NodeRef, ROOT};
use super::timers::TimerKey;
use super::{TreeDriver, frame};
use crate::attempt::{self, EachStored, FactWrite, retry_until_answered};
use crate::embedded::writer::{RecordReply, Writer};
use crate::embedded::{ProcessId, RunExit};
use crate::ending;
use crate::nodes::NodeOutput;

/// The result of writing a frame's record.
enum RecordOutcome {
    Stored,
    /// The execution ended. A child's end goes to the node that started it. The exit says which slot was freed.
    Ended(Option<End>, RunExit),
    /// The run leaves this process, and is resumed from its rows.
    Resumes,
    Lost,
}

impl TreeDriver {
    /// Records the end of a node or an item. The state of an item is dropped.
    pub(super) fn settle(&mut self, at: NodeRef, end: node::NodeEnd) {
        self.timers.remove(TimerKey::Node(at));
        self.close_loop(at, &end);
        let result = self.frame(at.frame).results.remove(&at.target());
        let result = result.or_else(|| self.delay_output(at, &end));
        let frame = self.frame(at.frame);
        let mut fact = frame.fact(at, end.status());
        let key = frame.key(at).clone();
        let (mut read_later, mut failure) = (Value::Null, None);
        match (result, end.status()) {
            (Some(Ok(output)), node::Status::Completed) => {
                fact.label = output.label;
                if output.stored {
                    read_later = output.output;
                } else {
                    if at.iteration == 0 && frame.is_read(at.node) {
                        read_later = output.output.clone();
                    }
                    fact.output = Some(output.output);
                }
            }
            (Some(Err(why)), node::Status::Failed) => failure = Some(why.at(key)),
            (result, node::Status::Unknown) => {
                failure = Some(result.and_then(Result::err).unwrap_or_else(Failure::unknown).at(key));
            }
            _ => {}
        }
        if at.iteration == 0 {
            frame.add_to_scope(at.node, &end, read_later, failure.as_ref());
            frame.failures.extend(failure.clone().map(|failure| (at.node, failure)));
        } else {
            frame.forget_attempt(at);
        }
        fact.error = failure;
        self.record_fact(at.frame, fact);
    }

    /// The output of a delay that is over. Only a delay completes without an entry in `results`.
    fn delay_output(&mut self, at: NodeRef, end: &node::NodeEnd) -> Option<Result<NodeOutput, Failure>> {
        matches!(end, node::NodeEnd::Completed { .. }).then(|| {
            self.end_attempt_span(at, "completed", None);
            Ok(NodeOutput::of_wait())
        })
    }

    /// Removes a loop that ended. Closes the span of a loop that was stopped or lost.
    fn close_loop(&mut self, at: NodeRef, end: &node::NodeEnd) {
        if at.iteration == 0 && self.frame(at.frame).loops.remove(&at.node).is_some() {
            self.end_attempt_span(at, if *end == node::NodeEnd::Canceled { "canceled" } else { "failed" }, None);
        }
    }

    pub(super) fn schedule_retry(&mut self, at: NodeRef, attempt: u32, wait: Duration) {
        let frame = self.frame(at.frame);
        let error = match frame.results.remove(&at.target()) {
            Some(Err(failure)) => Some(failure.at(frame.key(at).clone())),
            _ => None,
        };
        frame.set_attempt(at, attempt);
        let fact = NodeFact { attempt, next_in: Some(wait), error, ..frame.fact(at, node::Status::Retrying) };
        self.timers.set(TimerKey::Node(at), Instant::now() + wait);
        self.record_fact(at.frame, fact);
    }

    pub(super) async fn finish(&mut self, ix: FrameIx, outcome: &Outcome) {
        let frame = frame(&mut self.frames, ix);
        let failure = |node| frame.failures.get(&node).cloned();
        let workspace = frame.begun.workspace;
        frame.end = Some(ending::end(outcome, workspace, &frame.version, &frame.scope, failure).await);
        self.dirty.insert(ix);
    }

    pub(super) fn record_fact(&mut self, ix: FrameIx, fact: NodeFact) {
        self.pending_bytes += frame(&mut self.frames, ix).record_fact(fact);
        self.pending_facts += 1;
        self.dirty.insert(ix);
    }

    /// Writes the pending records, if there are any. Returns the exit if the run leaves this process.
    pub(super) async fn commit(&mut self) -> Option<RunExit> {
        let mut records = Vec::new();
        for ix in std::mem::take(&mut self.dirty) {
            let hold = self.hold;
            records.extend(self.frame(ix).take_record(hold).map(|record| (ix, record)));
        }
        (self.pending_bytes, self.pending_facts) = (0, 0);
        let ends = records.iter().any(|(_, record)| record.end.is_some());
        let below = records.iter().any(|(ix, _)| *ix != ROOT);
        let park = self.may_park().filter(|_| !ends);
        if below || park.is_none() {
            if let Some(exit) = self.write(records).await {
                return Some(exit);
            }
            // A child's end may have produced effects for its node.
            let park = park.filter(|_| self.effects.is_empty() && self.ready.is_empty())?;
            return self.park(Vec::new(), park).await;
        }
        self.park(records, park?).await
    }

    /// Writes the root's last records and parks the run.
    async fn park(&mut self, mut records: Vec<(FrameIx, Record)>, park: Duration) -> Option<RunExit> {
        if records.is_empty() {
            records.push((ROOT, Record::new(self.hold.execution, self.hold)));
        }
        for (_, record) in &mut records {
            record.park = Some(park);
        }
        self.write(records).await.or(Some(RunExit::Parked))
    }

    /// Writes records together. Returns the exit if the run leaves this process.
    async fn write(&mut self, records: Vec<(FrameIx, Record)>) -> Option<RunExit> {
        let (writer, process) = (self.shared.writer.clone(), self.process);
        let writes = records.into_iter().map(|(ix, record)| {
            let writer = writer.clone();
            async move { (ix, write_one(&writer, process, ix, record).await) }
        });
        for (ix, written) in join_all(writes).await {
            match written {
                RecordOutcome::Stored => {}
                RecordOutcome::Lost if ix != ROOT => match self.read_stored_end(ix).await {
                    Some(end) => self.frame_ended(ix, end),
                    None => return Some(RunExit::Lost),
                },
                RecordOutcome::Lost => return Some(RunExit::Lost),
                RecordOutcome::Resumes => return Some(RunExit::Released),
                RecordOutcome::Ended(_, exit) if ix == ROOT => return Some(exit),
                RecordOutcome::Ended(Some(end), _) => self.frame_ended(ix, end),
                RecordOutcome::Ended(None, _) => return Some(RunExit::Lost),
            }
        }
        None
    }

    /// Reads the end of a child whose record was refused: an earlier write may have stored the end, and only its reply
    /// was lost. None if another process owns the run.
    async fn read_stored_end(&mut self, ix: FrameIx) -> Option<End> {
        let at = self.frames.get(&ix)?.parent?;
        let frame = self.frame(at.frame);
        let parent = frame.parent_attempt(at, frame.attempt(at).unwrap_or(1));
        let (store, hold) = (self.shared.store.clone(), self.hold);
        match retry_until_answered(|| store.find_child(hold, &parent)).await {
            Ok(Some(ChildState::Ended { end, .. })) => Some(end),
            _ => None,
        }
    }
}

/// Writes one record, or the part of it that can be stored.
async fn write_one(writer: &Writer, process: ProcessId, ix: FrameIx, record: Record) -> RecordOutcome {
    let (execution, end) = (record.execution, record.end.clone());
    match writer.record(process, record).await {
        None => RecordOutcome::Lost,
        Some(RecordReply::Recorded(recorded)) if !recorded.held => RecordOutcome::Lost,
        Some(RecordReply::Recorded(recorded)) => match end {
            Some(end) => ended(ix, end, recorded.freed),
            None if recorded.ended => RecordOutcome::Ended(None, RunExit::Ended { freed: recorded.freed }),
            None => RecordOutcome::Stored,
        },
        Some(RecordReply::Refused(error, refused)) => {
            tracing::warn!(execution_id = %execution, error = %error, "Node result cannot be stored");
            write_refused(writer, process, ix, *refused).await
        }
    }
}

/// Writes a record that the database refused, fact by fact. If a fact is refused, its node fails. The state machine is
/// already past that node, so the run then leaves this process and is resumed from its rows.
async fn write_refused(writer: &Writer, process: ProcessId, ix: FrameIx, mut record: Record) -> RecordOutcome {
    let (facts, end) = (std::mem::take(&mut record.facts), record.end.take());
    let part = |facts, end| writer.record(process, Record { facts, end, park: None, ..record.clone() });
    let each = attempt::store_each(facts, |fact| {
        let writing = part(vec![fact], None);
        async {
            Ok::<_, std::convert::Infallible>(match writing.await {
                Some(RecordReply::Recorded(recorded)) if recorded.held && !recorded.ended => FactWrite::Stored,
                Some(RecordReply::Refused(..)) => FactWrite::Refused,
                _ => FactWrite::Lost,
            })
        }
    });
    let Ok(each) = each.await;
    let end = match (each, end) {
        (EachStored::All, None) => return RecordOutcome::Stored,
        (EachStored::All, Some(end)) => end,
        (EachStored::FailedAt(_), _) => return RecordOutcome::Resumes,
        (EachStored::Lost, _) => return RecordOutcome::Lost,
        (EachStored::Nothing, _) => ending::unstorable(),
    };
    for end in [end, ending::unstorable()] {
        match part(Vec::new(), Some(end.clone())).await {
            Some(RecordReply::Recorded(recorded)) if recorded.held => return ended(ix, end, recorded.freed),
            Some(RecordReply::Refused(..)) => {}
            _ => break,
        }
    }
    RecordOutcome::Lost
}

/// A record with this end is stored. A child's end is passed on to the node that started the child.
fn ended(ix: FrameIx, end: End, freed: Option<WorkspaceId>) -> RecordOutcome {
    if ix == ROOT {
        ending::counted(end.outcome, end.error.as_ref().map(|failure| failure.class));
    }
    RecordOutcome::Ended(Some(end).filter(|_| ix != ROOT), RunExit::Ended { freed })
}
