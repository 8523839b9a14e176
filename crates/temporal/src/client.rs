//! The Temporal engine as the rest of the service sees it: starts, describes and ends workflows.
//!
//! Invariants
//! - A start can be repeated in every state. The workflow id and the request id are both the execution's id, and
//!   duplicates are rejected.
//! - The slot of a terminated execution is freed only after its fence is stored and its workflow is closed.
//!
//! Not here: the content of a start request (`start`), what its answer means (`answer`), the code of the workflow
//! (`workflow`), queries about runs (`queries`).

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::embedded::{OnRunExit, RunExit};
use engine::versions::VersionCache;
use engine::{Engine, RunDescription, ending, log_event};
use futures_util::future::BoxFuture;
use kernel::execution::Status;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::queue::StartOutcome;
use kernel::signals::events;
use lru::LruCache;
use parking_lot::Mutex;
use store::Store;
use store::queue::claim::Begun;
use store::run::Ending;
use store::run::attempt::StartDetails;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    Client, UntypedSignal, UntypedWorkflow, UntypedWorkflowHandle, WorkflowCancelOptions, WorkflowDescribeOptions,
    WorkflowSignalOptions, WorkflowTerminateOptions,
};
use temporalio_common::data_converters::RawValue;
use temporalio_common::protos::temporal::api::workflow::v1::WorkflowExecutionInfo;
use temporalio_common::protos::temporal::api::workflowservice::v1::GetSystemInfoRequest;

use crate::NAME;
use crate::connection::{LazyConnection, NamespaceClient, chain, once, timed};
use crate::queries;
use crate::settings::TemporalSettings;
use crate::start;

/// How many more runs may be started. Temporal itself has no limit; the queue's limits apply.
const ROOM: usize = 1_000;

/// For how many executions the details of the start request are kept until it is sent.
const MAX_PREPARED: NonZeroUsize = NonZeroUsize::new(ROOM).expect("not zero");

/// The signal name for "an answer arrived".
const ANSWERED: &str = "answered";

/// The client of Temporal in this process. Cheap to clone.
#[derive(Clone)]
pub struct Temporal {
    shared: Arc<Shared>,
}

struct Shared {
    settings: TemporalSettings,
    store: Store,
    versions: VersionCache,
    link: LazyConnection,
    on_run_exit: OnRunExit,
    /// What the next start requests pass on.
    prepared: Mutex<LruCache<ExecutionId, StartDetails>>,
    /// True if the outcome of the last start is unknown. The client then checks that Temporal is reachable before the
    /// next start.
    doubtful: AtomicBool,
}

impl std::fmt::Debug for Temporal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.settings.fmt(f)
    }
}

impl Temporal {
    /// A client. It connects when it is first used.
    pub fn new(settings: TemporalSettings, store: Store, on_run_exit: OnRunExit) -> Temporal {
        let shared = Shared {
            settings,
            store,
            versions: VersionCache::default(),
            link: LazyConnection::default(),
            on_run_exit,
            prepared: Mutex::new(LruCache::new(MAX_PREPARED)),
            doubtful: AtomicBool::new(false),
        };
        Temporal { shared: Arc::new(shared) }
    }
}

impl Engine for Temporal {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capacity(&self) -> usize {
        ROOM
    }

    fn begins_with_claim(&self) -> bool {
        false
    }

    /// With this engine no execution begins in the commit of its claim, so there is nothing to run.
    fn run_begun(&self, _process: ProcessId, _begun: Vec<Begun>) {}

    fn prepare_starts(&self, executions: Vec<ExecutionId>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // After an error each start reads its own details, and reports the error.
            let details = self.shared.store.start_details(&executions).await.unwrap_or_default();
            let mut prepared = self.shared.prepared.lock();
            for (execution, details) in details {
                prepared.put(execution, details);
            }
        })
    }

    fn start(&self, _process: ProcessId, execution: ExecutionId) -> BoxFuture<'_, StartOutcome> {
        Box::pin(self.shared.start(execution))
    }

    fn location(&self) -> Option<String> {
        Some(self.shared.settings.location())
    }

    fn describe(&self, execution: ExecutionId) -> BoxFuture<'_, Result<RunDescription, String>> {
        Box::pin(async move {
            let described = queries::describe(&*self.shared.linked().await?, execution).await?;
            if matches!(described, RunDescription::Closed(_) | RunDescription::EndedExternally(_)) {
                self.shared.close_below(execution).await?;
            }
            Ok(described)
        })
    }

    fn open_runs(
        &self,
        from: ExecutionId,
        to: ExecutionId,
    ) -> BoxFuture<'_, Result<Option<BTreeSet<ExecutionId>>, String>> {
        Box::pin(async move { queries::open_runs(&*self.shared.linked().await?, from, to).await.map(Some) })
    }

    /// The longest time that a node may still run on a worker that sends no heartbeats.
    fn max_linger(&self) -> Duration {
        self.shared.settings.heartbeat.max(self.shared.settings.local_below)
    }

    fn check_health(&self) -> BoxFuture<'_, Result<Option<String>, String>> {
        Box::pin(async move {
            queries::check_workers(&*self.shared.linked().await?, &self.shared.settings.task_queue).await
        })
    }

    fn cancel(&self, execution: ExecutionId) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(reason) = shared.cancel(execution).await {
                tracing::warn!(execution_id = %execution, reason,
                    "Failed to request a cancel in Temporal; the request will be retried");
            }
        });
    }

    fn signal(&self, execution: ExecutionId) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(reason) = shared.signal(execution).await {
                tracing::warn!(execution_id = %execution, reason,
                    "Failed to signal an answer to a run; the signal will be retried");
            }
        });
    }

    fn terminate(&self, execution: ExecutionId) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(reason) = shared.terminate(execution).await {
                tracing::warn!(execution_id = %execution, reason, "Failed to terminate a run; the reconciler ends it");
            }
        });
    }
}

impl Shared {
    async fn start(&self, execution: ExecutionId) -> StartOutcome {
        let brief = match self.start_details(execution).await {
            Ok(Some(brief)) => brief,
            Ok(None) => {
                log_event!(events::EXECUTION_GONE, execution_id = %execution, queue_item_id = %execution.queue_item());
                return StartOutcome::Refused("the execution does not exist".to_owned());
            }
            Err(error) => return StartOutcome::Ambiguous(error.to_string()),
        };
        // An execution whose version cannot be read is started anyway. Its begin activity ends it with the reason.
        let version = self.versions.get(&self.store, brief.version).await.ok();
        let linked = match self.linked().await {
            Ok(linked) => linked,
            Err(reason) => return StartOutcome::Unavailable(reason),
        };
        if self.doubtful.load(Ordering::Relaxed)
            && let Err(reason) = reach(&linked.client).await
        {
            return StartOutcome::Unavailable(reason);
        }
        let version = version.as_ref().map(|version| &version.definition);
        let answered = start::send(&linked, &self.settings.task_queue, execution, &brief, version).await;
        self.doubtful.store(matches!(answered, StartOutcome::Ambiguous(_)), Ordering::Relaxed);
        answered
    }

    /// What the start request of an execution passes on. None if the execution does not exist.
    async fn start_details(&self, execution: ExecutionId) -> Result<Option<StartDetails>, store::Error> {
        let prepared = self.prepared.lock().pop(&execution);
        match prepared {
            Some(details) => Ok(Some(details)),
            None => Ok(self.store.start_details(&[execution]).await?.pop().map(|(_, details)| details)),
        }
    }

    async fn linked(&self) -> Result<Arc<NamespaceClient>, String> {
        self.link.get(&self.settings).await
    }

    async fn handle(&self, execution: ExecutionId) -> Result<UntypedWorkflowHandle<Client>, String> {
        let linked = self.linked().await?;
        Ok(linked.client.get_workflow_handle::<UntypedWorkflow>(execution.engine_id()))
    }

    async fn cancel(&self, execution: ExecutionId) -> Result<(), String> {
        let options = WorkflowCancelOptions::builder().rpc_options(once()).build();
        // If the workflow does not exist yet, its begin activity reads the cancel from the database.
        if_open(self.handle(execution).await?.cancel(options).await)
    }

    /// Signals a workflow that its rows changed. The workflow reads what changed from the rows.
    async fn signal(&self, execution: ExecutionId) -> Result<(), String> {
        let options = WorkflowSignalOptions::builder().rpc_options(once()).build();
        let nothing = RawValue::new(Vec::new());
        if_open(self.handle(execution).await?.signal(UntypedSignal::new(ANSWERED), nothing, options).await)
    }

    /// Terminates a workflow. A workflow that is already closed does not change.
    async fn close(&self, execution: ExecutionId) -> Result<(), String> {
        let options = WorkflowTerminateOptions::builder().reason("ended by force").rpc_options(once()).build();
        if_open(self.handle(execution).await?.terminate(options).await)
    }

    /// Terminates the open children of a closed workflow. Children do not end with their parent, because they may
    /// outlive the history that started them.
    async fn close_below(&self, execution: ExecutionId) -> Result<(), String> {
        for child in self.store.open_below(execution).await.map_err(|error| error.to_string())? {
            self.close(child).await?;
        }
        Ok(())
    }

    /// Terminates a workflow, and ends its execution once no worker can still perform one of its nodes. If this process
    /// dies in between, the reconciler finds the workflow closed and ends the execution.
    async fn terminate(&self, execution: ExecutionId) -> Result<(), String> {
        let handle = self.handle(execution).await?;
        let options = WorkflowDescribeOptions::builder().rpc_options(once()).build();
        let calls = match handle.describe(options).await {
            // Children may have calls in flight, too. Temporal lists only those that the last history started, so a
            // continued workflow counts as having children.
            Ok(found) => {
                let raw = found.raw();
                let continued =
                    raw.workflow_execution_info.as_ref().is_some_and(|info| info.first_run_id != run_id(info));
                continued || !raw.pending_activities.is_empty() || !raw.pending_children.is_empty()
            }
            Err(_) => true,
        };
        self.close(execution).await?;
        self.close_below(execution).await?;
        let in_flight = if calls { self.settings.heartbeat } else { Duration::ZERO };
        tokio::time::sleep(in_flight.max(self.settings.local_below)).await;
        let end = ending::terminated();
        let ending = Ending { execution, claim: None, end };
        let ended = self.store.complete(&[ending], Some(Status::Running), "engine").await;
        for ended in ended.map_err(|error| error.to_string())? {
            (self.on_run_exit)(execution, RunExit::Ended { freed: ended.freed.then_some(ended.workspace) });
        }
        Ok(())
    }
}

/// The result of a request to a workflow. A workflow that does not exist, or has ended, needs no request.
fn if_open(done: Result<(), WorkflowInteractionError>) -> Result<(), String> {
    match done {
        Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => Ok(()),
        Err(error) => Err(chain(&error)),
    }
}

/// Checks that Temporal answers.
async fn reach(client: &Client) -> Result<(), String> {
    let answered = client.connection().workflow_service().get_system_info(timed(GetSystemInfoRequest {})).await;
    answered.map(drop).map_err(|status| format!("Temporal cannot be reached: {}", status.message()))
}

/// The run id of the described workflow.
fn run_id(info: &WorkflowExecutionInfo) -> &str {
    info.execution.as_ref().map_or("", |execution| execution.run_id.as_str())
}
