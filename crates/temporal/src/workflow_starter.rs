//! A client that only sends start requests to Temporal, the same as the service does, but without a queue or a
//! database. Benchmarks compare the service with it, to measure what the queue costs.
//!
//! Invariants
//! - The request is built, sent and answered by the same code that the service uses.
//!
//! Not here: slots, records, repeats (`client` and its callers).

use std::sync::Arc;

use kernel::definition::Definition;
use kernel::ids::ExecutionId;
use kernel::queue::StartOutcome;
use store::run::attempt::StartDetails;

use crate::connection::{LazyConnection, NamespaceClient};
use crate::settings::TemporalSettings;
use crate::start;

/// A connection to Temporal. Cheap to clone.
#[derive(Clone)]
pub struct WorkflowStarter {
    linked: Arc<NamespaceClient>,
    task_queue: String,
}

impl std::fmt::Debug for WorkflowStarter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkflowStarter").field("task_queue", &self.task_queue).finish_non_exhaustive()
    }
}

impl WorkflowStarter {
    /// Connects. The error text contains no secret.
    pub async fn connect(settings: &TemporalSettings) -> Result<WorkflowStarter, String> {
        Ok(WorkflowStarter {
            linked: LazyConnection::default().get(settings).await?,
            task_queue: settings.task_queue.clone(),
        })
    }

    /// Sends one start request.
    pub async fn start(&self, execution: ExecutionId, brief: &StartDetails, version: &Definition) -> StartOutcome {
        start::send(&self.linked, &self.task_queue, execution, brief, Some(version)).await
    }
}
