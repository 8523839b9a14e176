//! The activities of a worker: begin a run, perform a step of light nodes or a single node, read answers, complete the
//! run.
//!
//! Invariants
//! - Every activity may be repeated at any moment, by this worker or another. The rows record what was already done.
//! - A database error does not count as an attempt of a node: the activity fails with an error that Temporal retries.
//!   An activity whose result is not stored anywhere yet retries the write itself (`attempt_end`).
//! - A panic ends its node or its run, so that Temporal does not repeat the activity forever.
//! - A worker changes nothing of a run that another process owns, because each write is fenced by owner and epoch.
//!
//! Not here: beginning a run (`begin`) and ending it (`completion`), one node (`node`), calls (`calls`), several light
//! nodes (`step`), loops (`loops`), children (`children`), waits and users' tasks (`waits`), the order of activities
//! (`workflow`).

mod attempt_end;
mod begin;
mod calls;
mod children;
mod completion;
mod loops;
mod node;
mod runs;
mod step;
mod waits;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use engine::embedded::{OnReady, OnRunExit};
use engine::gather::Gather;
use engine::nodes::call::CallResources;
use engine::versions::VersionCache;
use engine::{attempt, ending};
use futures_util::FutureExt as _;
use kernel::run::failure::{Class, Failure};
use kernel::run::node::Status;
use store::run::attempt::{AttemptReport, AttemptStart, NewAttempt, Ownership, ReportOutcome};
use store::{Error, Store};
use temporalio_common::error::ApplicationFailure;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use crate::message::{
    BeginRequest, BeginResult, CheckWaitsRequest, CheckWaitsResult, CollectRequest, CompleteRequest, CompletedRun,
    PerformRequest, PerformResult, StepRequest, StepResult, TaskReport,
};
use runs::LoadedRun;
pub(crate) use runs::RunCache;

/// The pause before Temporal repeats an activity that came too early or could not reach the database.
const SOON: Duration = Duration::from_millis(200);

/// What the activities share.
pub(crate) struct RunActivities {
    pub(crate) store: Store,
    pub(crate) resources: CallResources,
    pub(crate) on_run_exit: OnRunExit,
    pub(crate) on_ready: OnReady,
    pub(crate) versions: VersionCache,
    pub(crate) runs: RunCache,
    /// The attempts that activities start and report at the same time share a commit.
    pub(crate) starts: Gather<NewAttempt, AttemptStart>,
    pub(crate) reports: Gather<AttemptReport, ReportOutcome>,
    pub(crate) location: String,
    pub(crate) local_below: Duration,
    pub(crate) max_generations: u32,
    pub(crate) heartbeat: Duration,
}

#[activities]
impl RunActivities {
    #[activity(name = "begin")]
    pub(crate) async fn begin(
        self: Arc<Self>,
        _context: ActivityContext,
        begin: BeginRequest,
    ) -> Result<BeginResult, ActivityError> {
        self.try_begin(begin).await
    }

    #[activity(name = "step")]
    pub(crate) async fn step(
        self: Arc<Self>,
        _context: ActivityContext,
        step: StepRequest,
    ) -> Result<StepResult, ActivityError> {
        self.or_fail_run(step.hold, StepResult::Lost, self.run_step(step)).await
    }

    #[activity(name = "node")]
    pub(crate) async fn node(
        self: Arc<Self>,
        context: ActivityContext,
        call: PerformRequest,
    ) -> Result<PerformResult, ActivityError> {
        let hold = call.hold;
        // Boxed, because the request and the response of a call make this future large.
        let performing = Box::pin(with_heartbeats(&context, self.heartbeat, self.perform(&context, call)));
        self.or_fail_run(hold, PerformResult::Lost, performing).await
    }

    #[activity(name = "collect")]
    pub(crate) async fn collect(
        self: Arc<Self>,
        _context: ActivityContext,
        request: CollectRequest,
    ) -> Result<PerformResult, ActivityError> {
        self.or_fail_run(request.hold, PerformResult::Lost, self.collect_loop(request)).await
    }

    #[activity(name = "check_waits")]
    pub(crate) async fn check_waits(
        self: Arc<Self>,
        _context: ActivityContext,
        request: CheckWaitsRequest,
    ) -> Result<CheckWaitsResult, ActivityError> {
        self.or_fail_run(request.hold, CheckWaitsResult::Lost, self.settle_answered(request)).await
    }

    #[activity(name = "report")]
    pub(crate) async fn report(
        self: Arc<Self>,
        _context: ActivityContext,
        report: TaskReport,
    ) -> Result<PerformResult, ActivityError> {
        self.or_fail_run(report.hold, PerformResult::Lost, self.end_user_task(report)).await
    }

    #[activity(name = "complete")]
    pub(crate) async fn complete(
        self: Arc<Self>,
        _context: ActivityContext,
        complete: CompleteRequest,
    ) -> Result<Option<CompletedRun>, ActivityError> {
        self.or_fail_run(complete.hold, None, self.try_complete(complete.hold, &complete.outcome)).await
    }

    #[activity(name = "end_if_terminated")]
    pub(crate) async fn end_if_terminated(
        self: Arc<Self>,
        _context: ActivityContext,
        hold: Ownership,
    ) -> Result<Option<CompletedRun>, ActivityError> {
        self.end_terminated(hold).await
    }
}

/// What a worker registers.
pub(crate) mod registered {
    pub(crate) use super::run_activities::{Begin, CheckWaits, Collect, Complete, EndIfTerminated, Node, Report, Step};
}

impl RunActivities {
    /// Returns the result of an activity's work. Work that panicked would panic again, so its run is failed instead,
    /// and `lost` is returned.
    async fn or_fail_run<T>(&self, hold: Ownership, lost: T, work: impl Future<Output = Activity<T>>) -> Activity<T> {
        let Ok(result) = AssertUnwindSafe(work).catch_unwind().await else {
            tracing::error!(execution_id = %hold.execution, "Activity failed: its code panicked");
            self.end(hold, ending::failed(ending::broke_off())).await?;
            return Ok(lost);
        };
        result
    }

    /// Loads a run, or takes it from the cache. None if the run has ended, or another run performs the execution.
    async fn load_run(&self, hold: Ownership) -> Activity<Option<LoadedRun>> {
        if let Some(run) = self.runs.get(hold) {
            return Ok(Some(run));
        }
        let owned = self.store.owned_run(hold.execution, hold.owner).await.map_err(repeat_on)?;
        let Some(owned) = owned.filter(|owned| owned.begun.epoch == hold.epoch) else { return Ok(None) };
        let version = self.versions.get(&self.store, owned.begun.version).await;
        let version = version.map_err(|error| repeat_after("DATABASE", &error.to_string(), SOON))?;
        let run = LoadedRun::new(owned.begun, version);
        self.runs.insert(hold, run.clone());
        Ok(Some(run))
    }
}

/// The result of an activity.
type Activity<T> = Result<T, ActivityError>;

/// Does the work and sends heartbeats to Temporal meanwhile. The activity's start counts as the first heartbeat, so
/// short work sends none.
async fn with_heartbeats<T>(context: &ActivityContext, heartbeat: Duration, work: impl Future<Output = T>) -> T {
    let every = heartbeat / 4;
    let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => return result,
            // A heartbeat that cannot be sent is no reason to stop: Temporal notices missing heartbeats.
            _ = beat.tick() => drop(context.record_heartbeat(()).await),
        }
    }
}

/// The status with which the workflow resumes a node or an item. If it waits for its next attempt, it is performed like
/// any other: its activity reads the time of that attempt from the row.
fn resumed(status: Status) -> Status {
    if status.is_settled() { status } else { Status::Running }
}

/// The result of a settled node.
fn settled(status: Status, label: Option<kernel::ids::Label>, class: Option<Class>) -> PerformResult {
    PerformResult::Settled { status, label, class }
}

/// Turns an error of the database into an error that makes Temporal repeat the activity.
fn repeat_on(error: Error) -> ActivityError {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "Activity failed: the database is unavailable; Temporal retries it"
    );
    repeat_after("DATABASE", "the database is unavailable", SOON)
}

/// The result for a node, or the node's failure. If the database is unavailable, Temporal repeats the activity.
fn failure_or_repeat<T>(result: Result<T, attempt::Error>) -> Activity<Result<T, Failure>> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(attempt::Error::Failed(failure)) => Ok(Err(failure)),
        Err(attempt::Error::Unavailable(error)) => Err(repeat_on(error)),
    }
}

/// An error that makes Temporal repeat the activity after this time. The repeat does not count as an attempt of a node.
fn repeat_after(class: &str, message: &str, wait: Duration) -> ActivityError {
    let failure = ApplicationFailure::builder(anyhow::anyhow!(message.to_owned())).type_name(class.to_owned());
    ActivityError::application(failure.next_retry_delay(wait).build())
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
