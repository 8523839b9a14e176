//! A client that only starts: the requests that the service sends, without the service around them. What the rest
//! costs is measured against it.
//!
//! Invariants
//! - The request is made, sent and answered by the very code that the service uses.
//!
//! Not here: slots, records, repeats (`client`, and those who call it).

use std::sync::Arc;

use kernel::definition::Definition;
use kernel::ids::ExecutionId;
use kernel::queue::Answer;
use store::run::attempt::Brief;

use crate::connection::{Link, Linked};
use crate::settings::Settings;
use crate::start;

/// A connection to Temporal. Cheap to clone.
#[derive(Clone)]
pub struct Bare {
    linked: Arc<Linked>,
    task_queue: String,
}

impl std::fmt::Debug for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bare").field("task_queue", &self.task_queue).finish_non_exhaustive()
    }
}

impl Bare {
    /// Connects. Says why not in words that hold no secret.
    pub async fn connect(settings: &Settings) -> Result<Bare, String> {
        Ok(Bare { linked: Link::default().get(settings).await?, task_queue: settings.task_queue.clone() })
    }

    /// Asks once for a start.
    pub async fn start(&self, execution: ExecutionId, brief: &Brief, version: &Definition) -> Answer {
        start::send(&self.linked, &self.task_queue, execution, brief, Some(version)).await
    }
}
