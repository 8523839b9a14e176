//! The engine as the rest of the service sees it: starts, asks about and ends workflows.
//!
//! Invariants
//! - A start is repeatable in every state: the workflow's id is the execution's, duplicates are rejected, and the
//!   request's id is the execution's too.
//! - No slot is freed here before the fence is stored and the workflow is closed.
//!
//! Not here: what a start says (`start`), what an answer means (`answer`), what runs (`workflow`), what it is asked
//! (`questions`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::embedded::{Left, OnLeft};
use engine::versions::Versions;
use engine::{Described, Engine, ending, say};
use futures_util::future::BoxFuture;
use kernel::execution::Status;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::queue::Answer;
use kernel::signals::events;
use store::Store;
use store::queue::claim::Begun;
use store::run::Ending;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::tonic::Request;
use temporalio_client::{
    Client, UntypedSignal, UntypedWorkflow, UntypedWorkflowHandle, WorkflowCancelOptions, WorkflowDescribeOptions,
    WorkflowSignalOptions, WorkflowTerminateOptions,
};
use temporalio_common::data_converters::RawValue;
use temporalio_common::protos::temporal::api::workflow::v1::WorkflowExecutionInfo;
use temporalio_common::protos::temporal::api::workflowservice::v1::GetSystemInfoRequest;

use crate::NAME;
use crate::connection::{CALL, Link, Linked, chain, once};
use crate::questions;
use crate::settings::Settings;
use crate::start::{self, workflow_id};

/// How many more runs may be started: Temporal holds as many as it is given, and the limits are the queue's.
const ROOM: usize = 1_000;

/// The signal that an answer came.
const ANSWERED: &str = "answered";

/// Temporal, from this process. Cheap to clone.
#[derive(Clone)]
pub struct Temporal {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    store: Store,
    versions: Versions,
    link: Link,
    on_left: OnLeft,
    /// The last start ended in doubt: whether Temporal can be reached at all is asked before the next is sent.
    doubtful: AtomicBool,
}

impl std::fmt::Debug for Temporal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.settings.fmt(f)
    }
}

impl Temporal {
    /// A client; it connects when it is first used.
    pub fn new(settings: Settings, store: Store, on_left: OnLeft) -> Temporal {
        let shared = Shared {
            settings,
            store,
            versions: Versions::default(),
            link: Link::default(),
            on_left,
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

    /// Nothing begins with its claim, so there is nothing to adopt.
    fn adopt(&self, _process: ProcessId, _begun: Vec<Begun>) {}

    fn start(&self, _process: ProcessId, execution: ExecutionId) -> BoxFuture<'_, Answer> {
        Box::pin(self.shared.start(execution))
    }

    fn place(&self) -> Option<String> {
        Some(self.shared.settings.place())
    }

    fn describe(&self, execution: ExecutionId) -> BoxFuture<'_, Result<Described, String>> {
        Box::pin(async move {
            let described = questions::describe(&*self.shared.linked().await?, execution).await?;
            if matches!(described, Described::Closed(_) | Described::Broken(_)) {
                self.shared.close_below(execution).await?;
            }
            Ok(described)
        })
    }

    fn open(&self, from: ExecutionId, to: ExecutionId) -> BoxFuture<'_, Result<Option<BTreeSet<ExecutionId>>, String>> {
        Box::pin(async move { questions::open(&*self.shared.linked().await?, from, to).await.map(Some) })
    }

    /// For as long as a silent worker keeps it.
    fn lingers(&self) -> Duration {
        self.shared.settings.heartbeat.max(self.shared.settings.local_below)
    }

    fn look(&self) -> BoxFuture<'_, Result<Option<String>, String>> {
        Box::pin(async move { questions::look(&*self.shared.linked().await?, &self.shared.settings.task_queue).await })
    }

    fn cancel(&self, execution: ExecutionId) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(reason) = shared.cancel(execution).await {
                tracing::warn!(execution_id = %execution, reason,
                    "Temporal was not told of a cancel; it will be told again");
            }
        });
    }

    fn signal(&self, execution: ExecutionId) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(reason) = shared.signal(execution).await {
                tracing::warn!(execution_id = %execution, reason,
                    "A run was not told of an answer; it will be told again");
            }
        });
    }

    fn terminate(&self, execution: ExecutionId) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(reason) = shared.terminate(execution).await {
                tracing::warn!(execution_id = %execution, reason, "A run was not terminated; the reconciler ends it");
            }
        });
    }
}

impl Shared {
    async fn start(&self, execution: ExecutionId) -> Answer {
        let brief = match self.store.brief(execution).await {
            Ok(brief) => brief,
            Err(store::Error::NotFound) => {
                say!(events::EXECUTION_GONE, execution_id = %execution, queue_item_id = %execution.queue_item());
                return Answer::Refused("the execution does not exist".to_owned());
            }
            Err(error) => return Answer::Ambiguous(error.to_string()),
        };
        // One that cannot be read is started all the same: its begin ends it, with the reason.
        let version = self.versions.get(&self.store, brief.version).await.ok();
        let linked = match self.linked().await {
            Ok(linked) => linked,
            Err(reason) => return Answer::Unavailable(reason),
        };
        if self.doubtful.load(Ordering::Relaxed)
            && let Err(reason) = reach(&linked.client).await
        {
            return Answer::Unavailable(reason);
        }
        let version = version.as_ref().map(|version| &version.definition);
        let answered = start::send(&linked, &self.settings.task_queue, execution, &brief, version).await;
        self.doubtful.store(matches!(answered, Answer::Ambiguous(_)), Ordering::Relaxed);
        answered
    }

    async fn linked(&self) -> Result<Arc<Linked>, String> {
        self.link.get(&self.settings).await
    }

    async fn handle(&self, execution: ExecutionId) -> Result<UntypedWorkflowHandle<Client>, String> {
        let linked = self.linked().await?;
        Ok(linked.client.get_workflow_handle::<UntypedWorkflow>(workflow_id(execution)))
    }

    async fn cancel(&self, execution: ExecutionId) -> Result<(), String> {
        let options = WorkflowCancelOptions::builder().rpc_options(once()).build();
        match self.handle(execution).await?.cancel(options).await {
            // It is not there yet, or no more: its begin is told.
            Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => Ok(()),
            Err(error) => Err(chain(&error)),
        }
    }

    /// Tells a workflow that something came for it: what, is in its rows.
    async fn signal(&self, execution: ExecutionId) -> Result<(), String> {
        let options = WorkflowSignalOptions::builder().rpc_options(once()).build();
        let nothing = RawValue::new(Vec::new());
        match self.handle(execution).await?.signal(UntypedSignal::new(ANSWERED), nothing, options).await {
            // It is over.
            Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => Ok(()),
            Err(error) => Err(chain(&error)),
        }
    }

    /// Terminates a workflow; one that is closed stays as it is.
    async fn close(&self, execution: ExecutionId) -> Result<(), String> {
        let options = WorkflowTerminateOptions::builder().reason("ended by force").rpc_options(once()).build();
        match self.handle(execution).await?.terminate(options).await {
            Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => Ok(()),
            Err(error) => Err(chain(&error)),
        }
    }

    /// Terminates what is open below a workflow that is closed: no child ends with its parent, because it may outlive
    /// the history that started it.
    async fn close_below(&self, execution: ExecutionId) -> Result<(), String> {
        for child in self.store.open_below(execution).await.map_err(|error| error.to_string())? {
            self.close(child).await?;
        }
        Ok(())
    }

    /// Ends a workflow by force, and its execution once no worker can still perform a node of it. If this process dies
    /// on the way, the reconciler finds the workflow closed.
    async fn terminate(&self, execution: ExecutionId) -> Result<(), String> {
        let handle = self.handle(execution).await?;
        let options = WorkflowDescribeOptions::builder().rpc_options(once()).build();
        let calls = match handle.describe(options).await {
            // Its children may call too, whichever history started them.
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
            (self.on_left)(execution, Left::Ended { freed: ended.freed.then_some(ended.workspace) });
        }
        Ok(())
    }
}

/// Does it answer at all?
async fn reach(client: &Client) -> Result<(), String> {
    let mut request = Request::new(GetSystemInfoRequest {});
    request.set_timeout(CALL);
    let answered = client.connection().workflow_service().get_system_info(request).await;
    answered.map(drop).map_err(|status| format!("Temporal cannot be reached: {}", status.message()))
}

/// The id of the run that is described.
fn run_id(info: &WorkflowExecutionInfo) -> &str {
    info.execution.as_ref().map_or("", |execution| execution.run_id.as_str())
}
