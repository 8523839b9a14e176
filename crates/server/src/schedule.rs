//! The loop of schedules: it starts an execution for each tick that is due.
//!
//! Invariants
//! - The kernel decides which ticks start an execution (`kernel::schedule`). One transaction stores the tick, enqueues
//!   its execution and sets the time of the next tick. So no tick is handled twice, even if every process runs this
//!   loop.
//! - A tick's input is checked like the input of any start request, against the version that is published at that
//!   moment.
//! - The loop wakes when the next tick is due, when this process has changed a schedule, and at the poll interval.
//! - A schedule whose tick cannot be handled is retried after a delay that grows. It does not delay other schedules.
//! - A buffered tick waits for an earlier execution of its schedule to end. One pass checks one page of buffered ticks.
//!
//! What happens if this process dies: before a commit the schedule is still due, and the next pass of any process
//! handles it. After the commit the execution waits in the queue. The position among buffered ticks is only in memory:
//! another process begins with the first of them.
//!
//! Not here: the transaction (`store::schedule::fire`).

use parking_lot::Mutex;
use std::time::Duration;

use kernel::ids::ExecutionId;
use kernel::queue::Priority;
use kernel::schedule::TickStatus;
use kernel::signals::metrics;
use serde_json::Value;
use store::Store;
use store::queue::enqueue::Start;
use store::schedule::fire::{DueSchedule, FireOutcome};
use uuid::Uuid;

use crate::definition::inputs::{InputRules, InputVerdict, check_attempts, format_problems};
use crate::process::notifications::Notifier;

/// The most due schedules in one pass.
const BATCH: i64 = 100;
/// The most schedules with a buffered tick in one pass.
const PAGE: i64 = 500;
/// The shortest pause between two passes. Another process may be handling a due tick, which this process then sees as
/// still due; the pause gives that process the time to commit.
const MIN_SLEEP: Duration = Duration::from_millis(50);

pub(crate) struct Scheduler {
    pub(crate) store: Store,
    pub(crate) notifier: Notifier,
    pub(crate) input_rules: InputRules,
    pub(crate) max_backlog: Option<i32>,
    /// Where the next page of schedules with a buffered tick begins.
    pub(crate) page_from: Mutex<Option<Uuid>>,
}

impl Scheduler {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        for due in self.store.due_schedules(BATCH).await? {
            self.handle(&due).await?;
        }
        let from = *self.page_from.lock();
        let (buffered, next) = self.store.buffered_schedules(from, PAGE).await?;
        *self.page_from.lock() = next;
        for due in buffered {
            self.handle(&due).await?;
        }
        let next = self.store.next_tick().await?;
        Ok(next.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default().max(MIN_SLEEP)))
    }

    /// Handles the due ticks of a schedule. If that fails, the schedule is retried later. Returns an error only if the
    /// database does not answer.
    async fn handle(&self, due: &DueSchedule) -> Result<(), store::Error> {
        match self.fire(due).await {
            Ok(Some(ticks)) => {
                self.report(due, &ticks);
                return Ok(());
            }
            Ok(None) => {
                tracing::warn!(schedule_id = %due.id, workspace_id = %due.workspace,
                    "Could not check the input of a schedule's tick; the tick is retried after a growing delay");
            }
            Err(error) => {
                // A failure that concerns only this schedule, such as a lock of another session, does not end the pass.
                // The ping fails if the whole database is unavailable, which does end the pass.
                if error.is_unavailable() {
                    self.store.ping().await?;
                }
                let error = &error as &dyn std::error::Error;
                tracing::warn!(schedule_id = %due.id, workspace_id = %due.workspace, error,
                    "Could not start the execution of a schedule's tick; the tick is retried after a growing delay");
            }
        }
        self.store.back_off_schedule(due).await
    }

    /// Stores the due ticks of a schedule, and enqueues their executions. Returns the status and the delay in seconds
    /// of each tick; none if the input could not be checked.
    async fn fire(&self, due: &DueSchedule) -> Result<Option<Vec<(TickStatus, f64)>>, store::Error> {
        for _ in check_attempts() {
            let verdict = match self.input_rules.check(&self.store, &[(0, start_of_tick(due, None))], true).await {
                Ok(mut verdicts) => verdicts.pop(),
                // If the database caused the failure, the ping returns its error.
                Err(_) => self.store.ping().await.map(|()| None)?,
            };
            let verdict = match verdict {
                Some(InputVerdict::Valid { input, published }) => Ok((input, published)),
                Some(InputVerdict::Invalid(problems)) => Err(format_problems(&problems)),
                None => return Ok(None),
            };
            match self.store.fire(due, &verdict, self.max_backlog).await? {
                FireOutcome::Done(ticks) => return Ok(Some(ticks)),
                FireOutcome::Lost => return Ok(Some(Vec::new())),
                FireOutcome::VersionChanged => {}
            }
        }
        Ok(None)
    }

    fn report(&self, due: &DueSchedule, ticks: &[(TickStatus, f64)]) {
        for (status, late) in ticks {
            let outcome = status.name().to_lowercase();
            ::metrics::counter!(metrics::TICKS.name, "outcome" => outcome).increment(1);
            match status {
                TickStatus::Started => ::metrics::histogram!(metrics::TICK_LATENESS.name).record(late.max(0.0)),
                TickStatus::Failed | TickStatus::Refused => {
                    tracing::warn!(schedule_id = %due.id, workspace_id = %due.workspace, status = status.name(),
                        "Schedule tick started no execution; `forebay schedule get` shows the reason");
                }
                TickStatus::Buffered | TickStatus::Skipped => {}
            }
        }
        if ticks.iter().any(|(status, _)| *status == TickStatus::Started) {
            self.notifier.notify_enqueued(due.workspace);
        }
    }
}

/// A start request for a tick of this schedule, whose input can be checked. The store sets the trigger and the time of
/// the tick when it stores the request.
pub(crate) fn start_of_tick(due: &DueSchedule, idempotency: Option<(String, Vec<u8>)>) -> Start {
    Start {
        execution: ExecutionId(store::new_id()),
        workspace: due.workspace,
        definition: due.definition,
        input: due.input.clone(),
        priority: Priority::default(),
        run_at: None,
        concurrency_key: None,
        idempotency,
        trigger: Value::Null,
        trace: None,
        version: None,
        rerun_of: None,
    }
}
