//! For tests: histories to keep and replay, and rules to break on purpose.
//!
//! Invariants
//! - None of it is in a release: the feature is turned on by tests alone.

use std::sync::atomic::{AtomicU8, Ordering};

use kernel::ids::ExecutionId;
use prost::Message;
use temporalio_client::WorkflowHistory;
use temporalio_common::protos::temporal::api::history::v1::History;
use temporalio_sdk::workflow_replayer::{
    WorkflowReplayError, WorkflowReplayFailure, WorkflowReplayer, WorkflowReplayerOptions,
};

use crate::codec;
use crate::settings::{Keys, Settings};
use crate::workflow::WorkflowOrchestration;

/// A rule that is broken, to see whether anybody notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    None = 0,
    /// Begins what is ready in the wrong order: its commands are others than a history's.
    Backwards,
    /// Takes no branch.
    ForgetsLabels,
    /// Takes a failure that the author continues after for one that he does not.
    ForgetsOnError,
    /// Settles what is skipped as if it were canceled.
    CancelsSkips,
    /// Ends without waiting for what a stop aborts.
    LeavesBehind,
}

static MUTANT: AtomicU8 = AtomicU8::new(Mutant::None as u8);

/// Breaks one rule for the whole process from now on.
pub fn mutate(mutant: Mutant) {
    MUTANT.store(mutant as u8, Ordering::SeqCst);
}

pub(crate) fn is(mutant: Mutant) -> bool {
    MUTANT.load(Ordering::SeqCst) == mutant as u8
}

/// What Temporal keeps of an execution's run: all of its events.
pub async fn history(settings: &Settings, execution: ExecutionId) -> Result<Vec<u8>, String> {
    let client = crate::connection::dial(settings).await?;
    let handle = client.get_workflow_handle::<temporalio_client::UntypedWorkflow>(format!("execution-{execution}"));
    let events = handle.fetch_history(Default::default()).into_events().await.map_err(|error| error.to_string())?;
    Ok(History { events }.encode_to_vec())
}

/// Does this build still make the same of a history? Some if not: what broke.
pub async fn replay(saved: &[u8], keys: &Keys) -> Result<Option<String>, String> {
    let history = History::decode(saved).map_err(|error| error.to_string())?;
    let options = WorkflowReplayerOptions::new()
        .data_converter(codec::converter(keys))
        .register_workflow::<WorkflowOrchestration>()
        .map_err(|error| error.to_string())?;
    let replayer = WorkflowReplayer::new(options.build()).map_err(|error| error.to_string())?;
    match replayer.replay_workflow(WorkflowHistory::from(history)).await {
        Ok(()) => Ok(None),
        Err(WorkflowReplayError::Replay(WorkflowReplayFailure::Nondeterminism { message })) => Ok(Some(message)),
        Err(error) => Err(error.to_string()),
    }
}
