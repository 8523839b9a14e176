//! The loop of schedules: ticks that are due become executions.
//!
//! Invariants
//! - Look, decide, do: which ticks are run is the kernel's (`kernel::schedule`); a tick, its start and the next time
//!   are one transaction, so every process may look at once and none takes a tick twice.
//! - A tick's input is judged as a start's is, by the version that is published when it is taken.
//! - Awake when the next tick is due, when this process changed a schedule, and by the poll otherwise.
//! - A schedule in trouble keeps no other from its ticks: it is put off, for longer each time.
//! - Ticks that wait for an execution's end are looked at a page at a time, however many there are.
//!
//! What happens if this process dies: before a commit the schedule is due, and the next look takes it; after it, the
//! execution waits in the queue like any other.
//!
//! The place among those that wait is lost with the process: the next begins at the first.
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
use store::schedule::fire::{Due, Fired};
use uuid::Uuid;

use crate::definition::inputs::{InputRules, Verdict, reason, rounds};
use crate::process::hints::Hints;

/// Schedules looked at in one pass.
const BATCH: i64 = 100;
/// Schedules with a tick that waits, looked at in one pass.
const PAGE: i64 = 500;
/// The shortest sleep: what is due and taken by another is gone by then.
const SHORTEST: Duration = Duration::from_millis(50);

pub(crate) struct Schedules {
    pub(crate) store: Store,
    pub(crate) hints: Hints,
    pub(crate) input_rules: InputRules,
    pub(crate) max_backlog: Option<i32>,
    /// Where the next page of schedules with a tick that waits begins.
    pub(crate) page_from: Mutex<Option<Uuid>>,
}

impl Schedules {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        for due in self.store.due_schedules(BATCH).await? {
            self.look_at(&due).await?;
        }
        let from = *self.page_from.lock();
        let (turns, next) = self.store.buffered_schedules(from, PAGE).await?;
        *self.page_from.lock() = next;
        for due in turns {
            self.look_at(&due).await?;
        }
        let next = self.store.next_tick().await?;
        Ok(next.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default().max(SHORTEST)))
    }

    /// Takes what is due of a schedule, or puts it off. An error is the database's, not this schedule's.
    async fn look_at(&self, due: &Due) -> Result<(), store::Error> {
        match self.take(due).await {
            Ok(Some(ticks)) => {
                self.tell(due, &ticks);
                return Ok(());
            }
            Ok(None) => {
                tracing::warn!(schedule = %due.id, workspace = %due.workspace,
                    "A tick could not be judged; it is tried again later");
            }
            Err(error) => {
                // What only this schedule cannot have, a lock that another keeps, is no reason to stop.
                if error.is_unavailable() {
                    self.store.ping().await?;
                }
                let error = &error as &dyn std::error::Error;
                tracing::warn!(schedule = %due.id, workspace = %due.workspace, error,
                    "A tick could not be taken; it is tried again later");
            }
        }
        self.store.put_off_schedule(due).await
    }

    /// The ticks it wrote. None: its start could not be judged.
    async fn take(&self, due: &Due) -> Result<Option<Vec<(TickStatus, f64)>>, store::Error> {
        for _ in rounds() {
            let verdict = match self.input_rules.judge(&self.store, &[(0, start(due, None))], true).await {
                Ok(mut verdicts) => verdicts.pop(),
                // The database is away: asking it says so.
                Err(_) => self.store.ping().await.map(|()| None)?,
            };
            let verdict = match verdict {
                Some(Verdict::Good { input, published }) => Ok((input, published)),
                Some(Verdict::Refused(problems)) => Err(reason(&problems)),
                None => return Ok(None),
            };
            match self.store.fire(due, &verdict, self.max_backlog).await? {
                Fired::Done(ticks) => return Ok(Some(ticks)),
                Fired::Lost => return Ok(Some(Vec::new())),
                Fired::Moved => {}
            }
        }
        Ok(None)
    }

    fn tell(&self, due: &Due, ticks: &[(TickStatus, f64)]) {
        for (status, late) in ticks {
            let outcome = status.name().to_lowercase();
            ::metrics::counter!(metrics::TICKS.name, "outcome" => outcome).increment(1);
            match status {
                TickStatus::Started => ::metrics::histogram!(metrics::TICK_LATENESS.name).record(late.max(0.0)),
                TickStatus::Failed | TickStatus::Refused => {
                    let (schedule, workspace) = (due.id, due.workspace);
                    tracing::warn!(%schedule, %workspace, status = status.name(),
                        "A tick did not start; its row says why");
                }
                TickStatus::Buffered | TickStatus::Skipped => {}
            }
        }
        if ticks.iter().any(|(status, _)| *status == TickStatus::Started) {
            self.hints.enqueued(due.workspace);
        }
    }
}

/// What a schedule starts, to be judged; what it is told beside its input is the shells' to say.
pub(crate) fn start(due: &Due, idempotency: Option<(String, Vec<u8>)>) -> Start {
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
