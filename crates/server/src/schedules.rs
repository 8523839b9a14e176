//! The loop of schedules: ticks that are due become executions.
//!
//! Invariants
//! - Look, decide, do: which ticks are run is the kernel's (`kernel::schedule`); a tick, its start and the next time are one transaction, so
//!   every process may look at once and none takes a tick twice.
//! - A tick's input is judged as a start's is, by the version that is published when it is taken.
//! - Awake when the next tick is due, when this process changed a schedule, and by the poll otherwise.
//! - A schedule in trouble keeps no other from its ticks.
//!
//! What happens if this process dies: before a commit the schedule is due, and the next look takes it; after it, the execution waits in the
//! queue like any other.
//!
//! Not here: the transaction (`store::schedule::fire`).

use std::time::Duration;

use kernel::ids::ExecutionId;
use kernel::queue::Priority;
use kernel::schedule::TickStatus;
use kernel::signals::metrics;
use serde_json::Value;
use store::Store;
use store::enqueue::Start;
use store::schedule::fire::{Due, Fired};

use crate::hints::Hints;
use crate::http::declared::{Declared, Verdict, reason};

/// Schedules looked at in one pass.
const BATCH: i64 = 100;
/// How often a schedule is judged anew because another version was published meanwhile.
const ROUNDS: usize = 5;
/// The shortest sleep: what is due and taken by another is gone by then.
const SHORTEST: Duration = Duration::from_millis(50);

pub(crate) struct Schedules {
    pub(crate) store: Store,
    pub(crate) hints: Hints,
    pub(crate) declared: Declared,
    pub(crate) max_backlog: Option<i32>,
}

impl Schedules {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let mut troubled = false;
        for due in self.store.due_schedules(BATCH).await? {
            match self.take(&due).await {
                Ok(ticks) => self.tell(&due, &ticks),
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => {
                    troubled = true;
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(schedule = %due.id, workspace = %due.workspace, error, "A tick could not be taken");
                }
            }
        }
        // What is in trouble stays due: only the poll comes back to it.
        let next = self.store.next_tick().await?.filter(|_| !troubled);
        Ok(next.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default().max(SHORTEST)))
    }

    async fn take(&self, due: &Due) -> Result<Vec<(TickStatus, f64)>, store::Error> {
        for _ in 0..ROUNDS {
            let verdict = match self.declared.judge(&self.store, &[(0, start(due, None))], true).await {
                Ok(mut verdicts) => verdicts.pop(),
                // The database is away: asking it says so.
                Err(_) => self.store.ping().await.map(|()| None)?,
            };
            let verdict = match verdict {
                Some(Verdict::Good { input, published }) => Ok((input, published)),
                Some(Verdict::Refused(problem)) => Err(reason(&problem)),
                None => return Ok(Vec::new()),
            };
            match self.store.fire(due, &verdict, self.max_backlog).await? {
                Fired::Done(ticks) => return Ok(ticks),
                Fired::Lost => return Ok(Vec::new()),
                Fired::Moved => {}
            }
        }
        Ok(Vec::new())
    }

    fn tell(&self, due: &Due, ticks: &[(TickStatus, f64)]) {
        for (status, late) in ticks {
            let outcome = status.name().to_lowercase();
            ::metrics::counter!(metrics::TICKS.name, "outcome" => outcome).increment(1);
            match status {
                TickStatus::Started => ::metrics::histogram!(metrics::TICK_LATENESS.name).record(late.max(0.0)),
                TickStatus::Failed | TickStatus::Refused => {
                    let (schedule, workspace) = (due.id, due.workspace);
                    tracing::warn!(%schedule, %workspace, status = status.name(), "A tick did not start; its row says why");
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
