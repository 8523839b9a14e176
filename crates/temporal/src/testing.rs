//! For tests: histories to store and replay, and rules to break on purpose.
//!
//! Invariants
//! - Release builds contain none of this: only tests turn on the feature.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use kernel::ids::{ExecutionId, Label};
use kernel::orchestration::NodeSnapshot;
use kernel::run::node::Status;
use prost::Message;
use temporalio_client::tonic::Request;
use temporalio_client::{UntypedWorkflow, WorkflowHistory};
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::history::v1::{History, WorkflowExecutionStartedEventAttributes};
use temporalio_common::protos::temporal::api::workflow::v1::WorkflowExecutionInfo;
use temporalio_common::protos::temporal::api::workflowservice::v1::GetWorkflowExecutionHistoryRequest;
use temporalio_sdk::workflow_replayer::{
    WorkflowReplayError, WorkflowReplayFailure, WorkflowReplayer, WorkflowReplayerOptions,
};

use crate::codec;
use crate::connection::{chain, dial};
use crate::settings::{PayloadKeys, TemporalSettings};
use crate::workflow::WorkflowOrchestration;

/// A rule that is broken, to check that a test notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    None = 0,
    /// Begins ready nodes in the wrong order, so that its commands differ from a history's.
    Backwards,
    /// Drops the labels of results, so that no branch is taken.
    ForgetsLabels,
    /// Ignores `on_error`: a failure ends the execution even if the author wants it to continue.
    ForgetsOnError,
    /// Settles skipped nodes as canceled.
    CancelsSkips,
    /// Ends a stopped execution without waiting for the end of the work that the stop aborts.
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

/// Applies the broken rule to how a node settled. `UNKNOWN` fails the execution whatever `on_error` says.
pub(crate) fn bent(status: Status, label: Option<Label>) -> (Status, Option<Label>) {
    let forgets = status == Status::Failed && is(Mutant::ForgetsOnError);
    (if forgets { Status::Unknown } else { status }, label.filter(|_| !is(Mutant::ForgetsLabels)))
}

/// Applies the broken rule to a stored node.
pub(crate) fn bent_snapshot(node: NodeSnapshot) -> NodeSnapshot {
    let (status, label) = bent(node.status, node.label);
    NodeSnapshot { status, label, ..node }
}

static LONG: AtomicU32 = AtomicU32::new(0);

/// Lowers the number of events from which the whole process treats a history as long.
pub fn lower_long(events: u32) {
    LONG.store(events, Ordering::SeqCst);
}

pub(crate) fn long() -> Option<u32> {
    Some(LONG.load(Ordering::SeqCst)).filter(|events| *events > 0)
}

/// All events that Temporal stores for an execution's run.
pub async fn history(settings: &TemporalSettings, execution: ExecutionId) -> Result<Vec<u8>, String> {
    let client = dial(settings).await?;
    let handle = client.get_workflow_handle::<UntypedWorkflow>(execution.engine_id());
    let events = handle.fetch_history(Default::default()).into_events().await.map_err(|error| error.to_string())?;
    Ok(History { events }.encode_to_vec())
}

/// How many markers Temporal stores for an execution's run, one for each local activity, and how many other events.
pub async fn event_counts(settings: &TemporalSettings, execution: ExecutionId) -> Result<(usize, usize), String> {
    let history = History::decode(history(settings, execution).await?.as_slice()).map_err(|error| error.to_string())?;
    let markers = history.events.iter().filter(|event| event.event_type() == EventType::MarkerRecorded).count();
    Ok((markers, history.events.len() - markers))
}

/// The start input of an execution's workflow, as its history stores it. Not readable if there are keys.
pub async fn input(settings: &TemporalSettings, execution: ExecutionId) -> Result<serde_json::Value, String> {
    let history = History::decode(history(settings, execution).await?.as_slice()).map_err(|error| error.to_string())?;
    let first = start_event(history)?;
    let payload = first.input.and_then(|input| input.payloads.into_iter().next()).ok_or("the start has no input")?;
    serde_json::from_slice(&payload.data).map_err(|error| error.to_string())
}

/// Temporal's own description of an execution's workflow.
pub async fn described(settings: &TemporalSettings, execution: ExecutionId) -> Result<WorkflowExecutionInfo, String> {
    let client = dial(settings).await?;
    let handle = client.get_workflow_handle::<UntypedWorkflow>(execution.engine_id());
    let found = handle.describe(Default::default()).await.map_err(|error| chain(&error))?;
    found.raw().workflow_execution_info.clone().ok_or_else(|| "Temporal returned no description".to_owned())
}

/// The number of Temporal runs of an execution. Each run after the first continues the one before (continue-as-new).
pub async fn runs(settings: &TemporalSettings, execution: ExecutionId) -> Result<usize, String> {
    let client = dial(settings).await?;
    let (mut count, mut run_id) = (0, String::new());
    loop {
        let request = GetWorkflowExecutionHistoryRequest {
            namespace: client.options().namespace.clone(),
            execution: Some(WorkflowExecution { workflow_id: execution.engine_id(), run_id }),
            maximum_page_size: 1,
            ..GetWorkflowExecutionHistoryRequest::default()
        };
        let answer = client.connection().workflow_service().get_workflow_execution_history(Request::new(request)).await;
        let history = answer.map_err(|status| chain(&status))?.into_inner().history.unwrap_or_default();
        count += 1;
        run_id = start_event(history)?.continued_execution_run_id;
        if run_id.is_empty() {
            return Ok(count);
        }
    }
}

fn start_event(history: History) -> Result<WorkflowExecutionStartedEventAttributes, String> {
    match history.events.into_iter().next().and_then(|event| event.attributes) {
        Some(Attributes::WorkflowExecutionStartedEventAttributes(first)) => Ok(first),
        _ => Err("the history does not begin with a start event".to_owned()),
    }
}

/// Replays a history with this build. Returns what differs, or None if nothing does.
pub async fn replay(saved: &[u8], keys: &PayloadKeys) -> Result<Option<String>, String> {
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
