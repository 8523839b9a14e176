//! Ends executions whose deadline has passed, unless a process runs them.
//!
//! Invariants
//! - An execution that waits in the queue is ended here. A parked run is woken, and ends itself. A run in a process has
//!   its own timer. If that process dies, the next owner of the run checks the deadline before it continues the run.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::ExecutionId;
use kernel::run::failure::{Class, Failure};
use kernel::signals::metrics;
use store::Store;
use store::run::{End, Ending};

/// The shortest time between two passes, so that deadlines close to each other are handled together.
const MIN_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct DeadlineEnforcer {
    pub(crate) store: Store,
}

impl DeadlineEnforcer {
    /// Ends overdue executions; returns the time until the next deadline.
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let overdue = self.store.overdue_executions().await?;
        let (waiting, parked): (Vec<_>, Vec<_>) =
            overdue.into_iter().partition(|(_, status)| *status == Status::Pending);
        let error = Failure::new(Class::DeadlinePassed, "the deadline passed before the execution could start");
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
            self.store.make_parked_due(&parked).await?;
        }
        Ok(self.store.next_deadline().await?.map(|due| due.max(MIN_PAUSE)))
    }
}
