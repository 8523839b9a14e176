//! For tests: histories to keep and replay, and rules to break on purpose.
//!
//! Invariants
//! - None of it is in a release: the feature is turned on by tests alone.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use kernel::ids::{ExecutionId, Label};
use kernel::run::node::Status;
use prost::Message;
use temporalio_client::tonic::Request;
use temporalio_client::{UntypedWorkflow, WorkflowHistory};
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_common::protos::temporal::api::history::v1::History;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::workflow::v1::WorkflowExecutionInfo;
use temporalio_common::protos::temporal::api::workflowservice::v1::GetWorkflowExecutionHistoryRequest;
use temporalio_sdk::workflow_replayer::{
    WorkflowReplayError, WorkflowReplayFailure, WorkflowReplayer, WorkflowReplayerOptions,
};

use crate::codec;
use crate::connection::{chain, dial};
use crate::settings::{Keys, Settings};
use crate::start::workflow_id;
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

/// What a broken rule makes of how a node settled. What is lost fails its execution as well, and takes no edge.
pub(crate) fn bent(status: Status, label: Option<Label>) -> (Status, Option<Label>) {
    let forgets = status == Status::Failed && is(Mutant::ForgetsOnError);
    (if forgets { Status::Unknown } else { status }, label.filter(|_| !is(Mutant::ForgetsLabels)))
}

static LONG: AtomicU32 = AtomicU32::new(0);

/// Has the whole process take histories for long that have so many events.
pub fn lower_long(events: u32) {
    LONG.store(events, Ordering::SeqCst);
}

pub(crate) fn long() -> Option<u32> {
    Some(LONG.load(Ordering::SeqCst)).filter(|events| *events > 0)
}

/// What Temporal keeps of an execution's run: all of its events.
pub async fn history(settings: &Settings, execution: ExecutionId) -> Result<Vec<u8>, String> {
    let client = dial(settings).await?;
    let handle = client.get_workflow_handle::<UntypedWorkflow>(workflow_id(execution));
    let events = handle.fetch_history(Default::default()).into_events().await.map_err(|error| error.to_string())?;
    Ok(History { events }.encode_to_vec())
}

/// What an execution's workflow was started with, as stored in its history; not readable if there are keys.
pub async fn input(settings: &Settings, execution: ExecutionId) -> Result<serde_json::Value, String> {
    let history = History::decode(history(settings, execution).await?.as_slice()).map_err(|error| error.to_string())?;
    let Some(Attributes::WorkflowExecutionStartedEventAttributes(first)) =
        history.events.into_iter().next().and_then(|event| event.attributes)
    else {
        return Err("a history does not begin with a start".to_owned());
    };
    let payload = first.input.and_then(|input| input.payloads.into_iter().next()).ok_or("it was given nothing")?;
    serde_json::from_slice(&payload.data).map_err(|error| error.to_string())
}

/// What Temporal itself tells of an execution's workflow.
pub async fn described(settings: &Settings, execution: ExecutionId) -> Result<WorkflowExecutionInfo, String> {
    let client = dial(settings).await?;
    let handle = client.get_workflow_handle::<UntypedWorkflow>(workflow_id(execution));
    let found = handle.describe(Default::default()).await.map_err(|error| chain(&error))?;
    found.raw().workflow_execution_info.clone().ok_or_else(|| "nothing is told of it".to_owned())
}

/// How many runs an execution took, each but the first continued from the one before.
pub async fn runs(settings: &Settings, execution: ExecutionId) -> Result<usize, String> {
    let client = dial(settings).await?;
    let (mut count, mut run_id) = (0, String::new());
    loop {
        let request = GetWorkflowExecutionHistoryRequest {
            namespace: client.options().namespace.clone(),
            execution: Some(WorkflowExecution { workflow_id: workflow_id(execution), run_id }),
            maximum_page_size: 1,
            ..GetWorkflowExecutionHistoryRequest::default()
        };
        let answer = client.connection().workflow_service().get_workflow_execution_history(Request::new(request)).await;
        let events = answer.map_err(|status| chain(&status))?.into_inner().history.unwrap_or_default().events;
        let Some(Attributes::WorkflowExecutionStartedEventAttributes(first)) =
            events.into_iter().next().and_then(|event| event.attributes)
        else {
            return Err("a history does not begin with a start".to_owned());
        };
        count += 1;
        run_id = first.continued_execution_run_id;
        if run_id.is_empty() {
            return Ok(count);
        }
    }
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
