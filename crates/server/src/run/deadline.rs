//! Executions whose deadline has passed and that nobody runs: every one ends.
//!
//! Invariants
//! - One that waits is ended here; one that is parked is woken and ends itself; one that runs has
//!   its own timer, and if its process is dead its next owner sees the deadline first.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::ExecutionId;
use kernel::run::failure::{Class, Failure};
use kernel::signals::metrics;
use store::Store;
use store::run::{End, Ending};

/// Deadlines a moment apart are looked at together.
const SOONEST: Duration = Duration::from_millis(100);

pub(crate) struct Deadlines {
    pub(crate) store: Store,
}

impl Deadlines {
    /// Ends what is overdue; answers when to look again, if sooner than the poll.
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let overdue = self.store.overdue().await?;
        let (waiting, parked): (Vec<_>, Vec<_>) =
            overdue.into_iter().partition(|(_, status)| *status == Status::Pending);
        let error = Failure::new(Class::DeadlinePassed, "its deadline passed before it could start");
        let endings: Vec<Ending> = waiting
            .iter()
            .map(|(execution, _)| Ending {
                execution: *execution,
                claim: None,
                end: End { outcome: Status::TimedOut, output: None, error: Some(error.clone()) },
            })
            .collect();
        if !endings.is_empty() {
            let ended = self.store.complete(&endings, Some(Status::Pending), "deadlines").await?;
            let count = ended.iter().filter(|ended| ended.applied).count();
            ::metrics::counter!(metrics::FAILED.name, "reason" => Class::DeadlinePassed.name()).increment(count as u64);
        }
        let parked: Vec<ExecutionId> = parked.into_iter().map(|(execution, _)| execution).collect();
        if !parked.is_empty() {
            self.store.rouse(&parked).await?;
        }
        // One that runs has its own timer, but dies with its process.
        Ok(self.store.next_deadline().await?.map(|due| due.max(SOONEST)))
    }
}
