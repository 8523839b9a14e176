//! What a worker does for a workflow: begin, steps of light nodes, one node at a time, looks for answers, complete.
//!
//! Invariants
//! - Every activity may be repeated, by this worker or another, at any moment: the rows tell what was done.
//! - Trouble with the database is nobody's attempt: the activity fails in a way that Temporal repeats, unless it has
//!   something to tell that only it knows (`told`).
//! - A panic ends the node or the run that it belongs to; it is not repeated for ever.
//! - Nothing is performed for a run that is another's by now: each write shows owner and epoch.
//!
//! Not here: one node (`node`), calling out (`calls`), several light ones (`step`), loops (`loops`), children
//! (`children`), what others do (`asks`), in which order (`workflow`).

mod asks;
mod calls;
mod children;
mod loops;
mod node;
mod runs;
mod step;
mod told;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use engine::attempt::child::readable;
use engine::embedded::{Left, OnLeft, OnReady};
use engine::nodes::call::Means;
use engine::versions::{Version, Versions};
use engine::{attempt, ending, say};
use futures_util::FutureExt as _;
use kernel::expression::Scope;
use kernel::ids::{NodeKey, ProcessId};
use kernel::run::Outcome;
use kernel::run::failure::{Class, Failure};
use kernel::run::node::Status;
use kernel::signals::events;
use store::batch::{Fate, by_halves};
use store::run::attempt::Hold;
use store::run::{BeginAnswer, End, Record};
use store::{Error, Store};
use temporalio_common::error::ApplicationFailure;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use crate::NAME;
use crate::message::{
    Begin, Begun, Call, Complete, Completed, Ended, Gather, Granted, Look, Looked, Report, Shape, Step, Stepped,
};
use runs::Held;
pub(crate) use runs::Runs;

/// How soon a step that came before its time is repeated.
const SOON: Duration = Duration::from_millis(200);

/// What activities work with.
pub(crate) struct Kit {
    pub(crate) store: Store,
    pub(crate) means: Means,
    pub(crate) on_left: OnLeft,
    pub(crate) on_ready: OnReady,
    pub(crate) versions: Versions,
    pub(crate) runs: Runs,
    pub(crate) place: String,
    pub(crate) local_below: Duration,
    pub(crate) max_generations: u32,
    pub(crate) heartbeat: Duration,
}

#[activities]
impl Kit {
    #[activity(name = "begin")]
    pub(crate) async fn begin(
        self: Arc<Self>,
        _context: ActivityContext,
        begin: Begin,
    ) -> Result<Begun, ActivityError> {
        self.try_begin(begin).await
    }

    #[activity(name = "step")]
    pub(crate) async fn step(self: Arc<Self>, _context: ActivityContext, step: Step) -> Result<Stepped, ActivityError> {
        let hold = step.hold;
        let stepped = guarded(self.take_step(step)).await;
        self.or_broken(hold, stepped, Stepped::Lost).await
    }

    #[activity(name = "node")]
    pub(crate) async fn node(self: Arc<Self>, context: ActivityContext, call: Call) -> Result<Ended, ActivityError> {
        let (hold, heartbeat) = (call.hold, self.heartbeat);
        // Boxed: what a call may hold makes this future large.
        let performed = Box::pin(guarded(beating(&context, heartbeat, self.perform(&context, call)))).await;
        self.or_broken(hold, performed, Ended::Lost).await
    }

    #[activity(name = "gather")]
    pub(crate) async fn gather(
        self: Arc<Self>,
        _context: ActivityContext,
        gather: Gather,
    ) -> Result<Ended, ActivityError> {
        let hold = gather.hold;
        let gathered = guarded(self.gather_loop(gather)).await;
        self.or_broken(hold, gathered, Ended::Lost).await
    }

    #[activity(name = "look")]
    pub(crate) async fn look(self: Arc<Self>, _context: ActivityContext, look: Look) -> Result<Looked, ActivityError> {
        let hold = look.hold;
        let looked = guarded(self.look_for_answers(look)).await;
        self.or_broken(hold, looked, Looked::Lost).await
    }

    #[activity(name = "report")]
    pub(crate) async fn report(
        self: Arc<Self>,
        _context: ActivityContext,
        report: Report,
    ) -> Result<Ended, ActivityError> {
        let hold = report.hold;
        let taken = guarded(self.take_report(report)).await;
        self.or_broken(hold, taken, Ended::Lost).await
    }

    #[activity(name = "complete")]
    pub(crate) async fn complete(
        self: Arc<Self>,
        _context: ActivityContext,
        complete: Complete,
    ) -> Result<Option<Completed>, ActivityError> {
        let completed = guarded(self.try_complete(complete.hold, &complete.outcome)).await;
        self.or_broken(complete.hold, completed, None).await
    }

    #[activity(name = "give_way")]
    pub(crate) async fn give_way(
        self: Arc<Self>,
        _context: ActivityContext,
        hold: Hold,
    ) -> Result<Option<Completed>, ActivityError> {
        self.end_terminated(hold).await
    }
}

/// What a worker registers.
pub(crate) mod registered {
    pub(crate) use super::kit::{Begin, Complete, Gather, GiveWay, Look, Node, Report, Step};
}

impl Kit {
    /// What an activity came to. One that panicked would panic for ever: its run is ended instead, and `lost` is told.
    async fn or_broken<T>(&self, hold: Hold, result: Option<Activity<T>>, lost: T) -> Activity<T> {
        let Some(result) = result else {
            tracing::error!(execution_id = %hold.execution, "An activity panicked");
            self.end(hold, ending::failed(ending::broke_off())).await?;
            return Ok(lost);
        };
        result
    }

    async fn try_begin(&self, Begin { execution, owner }: Begin) -> Result<Begun, ActivityError> {
        let answers = self.store.begin_at(&[execution], NAME, Some(&self.place), owner).await.map_err(again)?;
        match answers.into_iter().next() {
            Some((_, BeginAnswer::Granted(_))) => {}
            Some((_, BeginAnswer::NotYet)) => return Err(later("NOT_YET", "the item holds no slot yet", SOON)),
            Some((_, BeginAnswer::Ended)) => return Ok(Begun::Over),
            Some((_, BeginAnswer::Gone)) | None => {
                say!(events::EXECUTION_GONE, execution_id = %execution, queue_item_id = %execution.queue_item());
                return Ok(Begun::Over);
            }
        }
        let Some(owned) = self.store.owned_run(execution, owner).await.map_err(again)? else { return Ok(Begun::Over) };
        let hold = Hold { execution, owner, epoch: owned.begun.epoch };
        if owned.terminating {
            self.end_terminated(hold).await?;
            return Ok(Begun::Over);
        }
        let version = match or_repeat(readable(&self.store, &self.versions, owned.begun.version).await)? {
            Ok(version) => version,
            Err(failure) => {
                tracing::warn!(execution_id = %execution, reason = failure.message, "An execution cannot be run");
                self.end(hold, ending::failed(failure)).await?;
                return Ok(Begun::Over);
            }
        };
        let granted = self.stand(hold, &version, owned.canceling, owned.begun.deadline_in).await?;
        Ok(Begun::Granted(Box::new(granted)))
    }

    /// Where the run stands, from its rows.
    async fn stand(
        &self,
        hold: Hold,
        version: &Version,
        canceling: bool,
        deadline: Duration,
    ) -> Result<Granted, ActivityError> {
        let (mut settled, mut open) = (Vec::new(), Vec::new());
        for row in self.store.node_states(hold.execution).await.map_err(again)? {
            let Some(node) = version.plan.index_of(&row.node) else { continue };
            match row.status.is_settled() {
                true => settled.push((node, row.status, row.label)),
                false => open.push(node),
            }
        }
        let shape = Shape::new(&version.definition, &version.plan, whole_ms(self.local_below));
        let (deadline_ms, heartbeat_ms) = (whole_ms(deadline), whole_ms(self.heartbeat));
        Ok(Granted { epoch: hold.epoch, shape, settled, open, deadline_ms, heartbeat_ms, canceling })
    }

    async fn try_complete(&self, hold: Hold, outcome: &Outcome) -> Result<Option<Completed>, ActivityError> {
        let Some(Held { begun, version, .. }) = self.held(hold).await? else { return self.end_terminated(hold).await };
        let mut looked_at: Vec<NodeKey> = match outcome {
            Outcome::Completed => version.looked_at_by_outputs().into_iter().collect(),
            _ => Vec::new(),
        };
        if let Outcome::Failed { node } = outcome {
            looked_at.push(version.plan.node(*node).key.clone());
        }
        let mut scope = engine::scope::scope(&begun, &version);
        let errors = self.look_at(hold, &looked_at, &mut scope).await?;
        let failure = |_| errors.into_iter().next_back();
        let end = ending::end(outcome, begun.workspace, &version, &scope, failure).await;
        match self.end(hold, end).await? {
            Some(completed) => Ok(Some(completed)),
            None => self.end_terminated(hold).await,
        }
    }

    /// Loads what some nodes produced into a scope; answers the errors of those that failed, in that order.
    async fn look_at(&self, hold: Hold, nodes: &[NodeKey], scope: &mut Scope) -> Result<Vec<Failure>, ActivityError> {
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = nodes.iter().map(NodeKey::as_str).collect();
        let mut errors = Vec::new();
        for row in self.store.some_nodes(hold.execution, &names).await.map_err(again)? {
            if row.status.is_settled() {
                let seen = engine::scope::seen(row.status, row.output.unwrap_or_default(), row.error.as_ref());
                scope.nodes.insert(row.node, seen);
                errors.extend(row.error);
            }
        }
        Ok(errors)
    }

    /// The run was ended by force, and whoever did could not end it here; or it is over. None if nothing was to be
    /// done.
    async fn end_terminated(&self, hold: Hold) -> Result<Option<Completed>, ActivityError> {
        let owned = self.store.owned_run(hold.execution, hold.owner).await.map_err(again)?;
        let Some(owned) = owned.filter(|owned| owned.terminating) else {
            tracing::warn!(execution_id = %hold.execution,
                "A run came to its end after its execution had, or was gone");
            return Ok(None);
        };
        self.end(Hold { epoch: owned.begun.epoch, ..hold }, ending::terminated()).await
    }

    /// Ends the execution; none if it is no longer this run's to end.
    async fn end(&self, hold: Hold, end: End) -> Result<Option<Completed>, ActivityError> {
        let (status, class) = (end.outcome, end.error.as_ref().map(|error| error.class));
        let record = Record { end: Some(end), ..Record::new(hold.execution, hold) };
        let recorded = match self.record(hold.owner, record).await? {
            Fate::Done(recorded) => recorded,
            Fate::Refused(_) => {
                let unstorable = Failure::new(Class::UnstorableOutput, "the database cannot hold the outputs");
                return Box::pin(self.end(hold, ending::failed(unstorable))).await;
            }
        };
        self.runs.forget(hold.execution);
        if !recorded.held {
            // Somebody may have deleted its row: the workflow is over either way, and the slot is freed.
            for workspace in self.store.lose(&[hold.execution], "engine").await.map_err(again)? {
                (self.on_left)(hold.execution, Left::Ended { freed: Some(workspace) });
            }
            return Ok(None);
        }
        ending::counted(status, class);
        (self.on_left)(hold.execution, Left::Ended { freed: recorded.freed });
        Ok(Some(Completed { status, class }))
    }

    /// One record; what the database cannot hold is told apart from what it cannot do now.
    async fn record(&self, owner: ProcessId, record: Record) -> Result<Fate<store::run::Recorded>, ActivityError> {
        let records = [record];
        let fates = by_halves(&records, |some| self.store.record(owner, some, "engine")).await.map_err(again)?;
        fates.into_iter().next().ok_or_else(|| later("DATABASE", "a record was not answered", SOON))
    }

    /// The run as this worker knows it; none if it is another's by now, or over.
    async fn held(&self, hold: Hold) -> Result<Option<Held>, ActivityError> {
        if let Some(held) = self.runs.get(hold) {
            return Ok(Some(held));
        }
        let owned = self.store.owned_run(hold.execution, hold.owner).await.map_err(again)?;
        let Some(owned) = owned.filter(|owned| owned.begun.epoch == hold.epoch) else { return Ok(None) };
        let version = self.versions.get(&self.store, owned.begun.version).await;
        let version = version.map_err(|error| later("DATABASE", &error.to_string(), SOON))?;
        let held = Held::new(owned.begun, version);
        self.runs.keep(hold, held.clone());
        Ok(Some(held))
    }
}

/// What an activity comes to.
type Activity<T> = Result<T, ActivityError>;

/// What the work comes to; none if it panics.
async fn guarded<T>(work: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(work).catch_unwind().await.ok()
}

/// Does the work, and tells Temporal all the while that it is at it. Not at once: the start itself counts as a beat,
/// and work that is soon over costs Temporal none.
async fn beating<T>(context: &ActivityContext, heartbeat: Duration, work: impl Future<Output = T>) -> T {
    let every = heartbeat / 4;
    let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => return result,
            // That nothing can be told of a heartbeat is no reason to stop: a missing one is noticed.
            _ = beat.tick() => drop(context.record_heartbeat(()).await),
        }
    }
}

/// A settled end, as the workflow is told.
fn settled(status: Status, label: Option<kernel::ids::Label>, class: Option<Class>) -> Ended {
    Ended::Settled { status, label, class }
}

/// The database's trouble: Temporal repeats the activity.
fn again(error: Error) -> ActivityError {
    tracing::warn!(error = &error as &dyn std::error::Error, "An activity is repeated");
    later("DATABASE", "the database is not available", SOON)
}

/// What was done for a node, or why the node fails; a database that does not answer repeats the activity.
fn or_repeat<T>(result: Result<T, attempt::Error>) -> Activity<Result<T, Failure>> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(attempt::Error::Failed(failure)) => Ok(Err(failure)),
        Err(attempt::Error::Unavailable(error)) => Err(again(error)),
    }
}

/// To be repeated after that time, at no one's expense.
fn later(class: &str, message: &str, wait: Duration) -> ActivityError {
    let failure = ApplicationFailure::builder(anyhow::anyhow!(message.to_owned())).type_name(class.to_owned());
    ActivityError::application(failure.next_retry_delay(wait).build())
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
