//! What the dispatcher asks of the embedded engine.
//!
//! Not here: the runs themselves (`embedded`).

use std::sync::PoisonError;

use futures_util::future::BoxFuture;
use kernel::execution;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::queue::Answer;
use kernel::signals::events;
use store::Error;
use store::admission::Begun;
use store::run::{BeginAnswer, End};

use super::run::Message;
use super::{Embedded, NAME};
use crate::{Described, Engine, say};

impl Engine for Embedded {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capacity(&self) -> usize {
        let reserve = self.shared.settings.max_runs / 10;
        self.room().saturating_sub(reserve)
    }

    fn begins_with_claim(&self) -> bool {
        true
    }

    fn adopt(&self, process: ProcessId, begun: Vec<Begun>) {
        for begun in begun {
            self.spawn(process, begun, Vec::new(), false, false);
        }
    }

    fn start(&self, process: ProcessId, execution: ExecutionId) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let answers = match self.shared.store.begin(&[execution], NAME, process).await {
                Ok(answers) => answers,
                Err(error) => return Answer::Ambiguous(error.to_string()),
            };
            match answers.into_iter().next() {
                Some((_, BeginAnswer::Granted(begun))) => {
                    // It may be a repeat of a start that was granted before a crash of its answer:
                    // what it stored is taken up.
                    match self.resume(process, &[begun.execution], false).await {
                        Ok(()) => Answer::Started,
                        Err(error) => Answer::Ambiguous(error.to_string()),
                    }
                }
                Some((_, BeginAnswer::Ended)) => Answer::AlreadyThere,
                Some((_, BeginAnswer::NotYet)) => Answer::Ambiguous("the item holds no slot".to_owned()),
                Some((_, BeginAnswer::Gone)) | None => {
                    say!(events::EXECUTION_GONE, execution_id = %execution, queue_item_id = %execution.queue_item());
                    Answer::Refused("the execution does not exist".to_owned())
                }
            }
        })
    }

    fn place(&self) -> Option<String> {
        None
    }

    /// The store is this engine's own memory: what has begun is known.
    fn describe(&self, execution: ExecutionId) -> BoxFuture<'_, Result<Described, String>> {
        Box::pin(async move {
            let found = match self.shared.store.execution(execution, None).await {
                Ok(found) => found,
                Err(Error::NotFound) => return Ok(Described::Unknown),
                Err(error) => return Err(error.to_string()),
            };
            Ok(match found.status {
                execution::Status::Pending => Described::Unknown,
                execution::Status::Running => Described::Running,
                outcome => Described::Closed(End { outcome, output: found.output, error: None }),
            })
        })
    }

    /// The fence is stored before; without this the run's next record, or the next look at what this
    /// process owns, comes to the same.
    fn terminate(&self, execution: ExecutionId) {
        let process = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner).process;
        let Some(process) = process else { return };
        let engine = self.clone();
        self.shared.tasks.spawn(async move { engine.take_up(process, execution).await });
    }

    fn cancel(&self, execution: ExecutionId) {
        let runs = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = runs.held.get(&execution) {
            // A run that is just leaving needs no word.
            let _leaving = held.inbox.send(Message::Cancel);
        }
    }
}
