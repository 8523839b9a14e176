//! Sends the request that starts a workflow, and reads Temporal's answer. The request contains everything that Temporal
//! learns about an execution at its start.
//!
//! Invariants
//! - The same execution produces the same request in every process. Its workflow id, policies and request id make a
//!   repeat harmless.
//! - Values that Temporal stores are encrypted if there are keys. Names and ids are not encrypted.
//! - A search attribute is set only if the namespace has it.
//!
//! Not here: when to start and the consequences of the answer (`client`), what the answer means (`answer`).

use std::collections::{BTreeMap, BTreeSet};

use kernel::definition::Definition;
use kernel::ids::ExecutionId;
use kernel::queue::StartOutcome;
use kernel::signals::spans;
use store::run::attempt::StartDetails;
use temporalio_client::Client;
use temporalio_common::data_converters::{
    GenericPayloadConverter, SerializationContext, SerializationContextData, TemporalSerializable,
    WorkflowSerializationContext,
};
use temporalio_common::protos::temporal::api::common::v1::{
    Memo, Payload, Payloads, Priority, SearchAttributes as ProtoSearchAttributes, WorkflowType,
};
use temporalio_common::protos::temporal::api::enums::v1::{WorkflowIdConflictPolicy, WorkflowIdReusePolicy};
use temporalio_common::protos::temporal::api::taskqueue::v1::TaskQueue;
use temporalio_common::protos::temporal::api::workflowservice::v1::StartWorkflowExecutionRequest;
use temporalio_common::search_attributes::{SearchAttributeKey, SearchAttributes};
use tracing::Instrument as _;

use crate::WORKFLOW;
use crate::answer::answer;
use crate::connection::{NamespaceClient, chain, timed};
use crate::message::Input;
use crate::retry::RetryConfig;

const WORKSPACE: SearchAttributeKey<String> = SearchAttributeKey::keyword("ForebayWorkspace");
const DEFINITION: SearchAttributeKey<String> = SearchAttributeKey::keyword("ForebayDefinition");
const QUEUE_ITEM: SearchAttributeKey<String> = SearchAttributeKey::keyword("ForebayQueueItem");

/// Sends the start request to Temporal. If Temporal refuses it, and the namespace's search attributes have changed, the
/// request is sent once more with the attributes that the namespace has now.
pub(crate) async fn send(
    linked: &NamespaceClient,
    task_queue: &str,
    execution: ExecutionId,
    brief: &StartDetails,
    version: Option<&Definition>,
) -> StartOutcome {
    let NamespaceClient { client, attributes } = linked;
    let names = attributes.names(client).await;
    let request = match request(client, task_queue, execution, brief, version).await {
        Ok(request) => request,
        Err(reason) => return StartOutcome::Refused(reason),
    };
    let search_attributes = search_attributes(execution, brief, &names);
    let span = || tracing::debug_span!(spans::START_WORKFLOW.name, workflow_id = execution.engine_id(), task_queue);
    let answered = send_once(client, request.clone(), search_attributes.clone()).instrument(span()).await;
    if search_attributes.is_none() || !matches!(answered, StartOutcome::Refused(_)) {
        return answered;
    }
    let attributes_now = self::search_attributes(execution, brief, &*attributes.read(client).await);
    if attributes_now == search_attributes {
        answered
    } else {
        send_once(client, request, attributes_now).instrument(span()).await
    }
}

/// Sends one request and reads its answer.
async fn send_once(
    client: &Client,
    request: StartWorkflowExecutionRequest,
    search_attributes: Option<ProtoSearchAttributes>,
) -> StartOutcome {
    let request = timed(StartWorkflowExecutionRequest { search_attributes, ..request });
    match client.connection().workflow_service().start_workflow_execution(request).await {
        Ok(started) => answer(Ok(started.get_ref().started)),
        Err(status) => answer(Err(&status)),
    }
}

/// The search attributes of an execution that the namespace has.
fn search_attributes(
    execution: ExecutionId,
    brief: &StartDetails,
    known: &BTreeSet<String>,
) -> Option<ProtoSearchAttributes> {
    let all = [
        WORKSPACE.value_set(brief.workspace.to_string()),
        DEFINITION.value_set(brief.definition.to_string()),
        QUEUE_ITEM.value_set(execution.queue_item().to_string()),
    ];
    let set: Vec<_> = all.into_iter().filter(|update| known.contains(update.name())).collect();
    (!set.is_empty()).then(|| SearchAttributes::new(set).into_proto())
}

async fn request(
    client: &Client,
    task_queue: &str,
    execution: ExecutionId,
    brief: &StartDetails,
    version: Option<&Definition>,
) -> Result<StartWorkflowExecutionRequest, String> {
    let nodes = version.iter().flat_map(|definition| &definition.nodes);
    let input = Input {
        execution_id: execution,
        workspace_id: brief.workspace,
        workflow_definition_id: brief.definition,
        version_id: brief.version,
        node_ids: nodes.map(|node| node.key.clone()).collect(),
        retry_config: RetryConfig::of(version),
        semantics: brief.semantics,
        inherits: false,
    };
    let item = execution.queue_item().to_string();
    let mut memo = BTreeMap::new();
    for (name, value) in [("queueItemId", item), ("workspaceId", brief.workspace.to_string())] {
        memo.extend(sealed(client, &value).await?.into_iter().map(|payload| (name.to_owned(), payload)));
    }
    Ok(StartWorkflowExecutionRequest {
        namespace: client.options().namespace.clone(),
        workflow_id: execution.engine_id(),
        workflow_type: Some(WorkflowType { name: WORKFLOW.to_owned() }),
        task_queue: Some(TaskQueue { name: task_queue.to_owned(), ..TaskQueue::default() }),
        input: Some(Payloads { payloads: sealed(client, &input).await? }),
        // Even after the run has closed, a repeat of the same request gets the same answer as the first.
        request_id: execution.to_string(),
        identity: client.connection().identity().to_owned(),
        workflow_id_reuse_policy: WorkflowIdReusePolicy::RejectDuplicate.into(),
        workflow_id_conflict_policy: WorkflowIdConflictPolicy::UseExisting.into(),
        memo: Some(Memo { fields: memo.into_iter().collect() }),
        priority: Some(Priority {
            priority_key: brief.priority.value().into(),
            fairness_key: brief.workspace.to_string(),
            fairness_weight: f32::from(brief.weight),
        }),
        ..StartWorkflowExecutionRequest::default()
    })
}

/// A value as Temporal stores it: encrypted if there are keys.
async fn sealed<T: TemporalSerializable + 'static>(client: &Client, value: &T) -> Result<Vec<Payload>, String> {
    let converter = &client.options().data_converter;
    let data = SerializationContextData::Workflow(WorkflowSerializationContext::new());
    let context = SerializationContext::new(&data, converter.payload_converter());
    let plain = converter.payload_converter().to_payloads(&context, value).map_err(|error| chain(&error))?;
    converter.codec().encode(&data, plain).await.map_err(|error| chain(&error))
}
