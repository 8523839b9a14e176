//! The request that starts a workflow: all that Temporal is told of an execution, and its answer.
//!
//! Invariants
//! - The same execution makes the same request, whoever sends it: an id, policies and a request id that make a repeat
//!   harmless.
//! - Values that Temporal stores are encrypted if there are keys; names and ids are in clear.
//! - A search attribute is set only where the namespace has it.
//!
//! Not here: when to start and what the answer leads to (`client`), what it means (`answer`).

use std::collections::{BTreeMap, BTreeSet};

use kernel::definition::Definition;
use kernel::ids::ExecutionId;
use kernel::queue::Answer;
use kernel::signals::spans;
use store::run::attempt::Brief;
use temporalio_client::Client;
use temporalio_client::tonic::Request;
use temporalio_common::data_converters::{
    GenericPayloadConverter, SerializationContext, SerializationContextData, TemporalSerializable,
    WorkflowSerializationContext,
};
use temporalio_common::protos::temporal::api::common::v1::{
    Memo, Payload, Payloads, Priority, SearchAttributes as Marks, WorkflowType,
};
use temporalio_common::protos::temporal::api::enums::v1::{WorkflowIdConflictPolicy, WorkflowIdReusePolicy};
use temporalio_common::protos::temporal::api::taskqueue::v1::TaskQueue;
use temporalio_common::protos::temporal::api::workflowservice::v1::StartWorkflowExecutionRequest;
use temporalio_common::search_attributes::{SearchAttributeKey, SearchAttributes};
use tracing::Instrument as _;

use crate::WORKFLOW;
use crate::answer::answer;
use crate::connection::{CALL, Linked, chain};
use crate::message::Input;
use crate::retry::RetryConfig;

const WORKSPACE: SearchAttributeKey<String> = SearchAttributeKey::keyword("ForebayWorkspace");
const DEFINITION: SearchAttributeKey<String> = SearchAttributeKey::keyword("ForebayDefinition");
const QUEUE_ITEM: SearchAttributeKey<String> = SearchAttributeKey::keyword("ForebayQueueItem");

/// The id under which Temporal knows an execution.
pub(crate) fn workflow_id(execution: ExecutionId) -> String {
    format!("execution-{execution}")
}

/// Asks Temporal to start a workflow: once, unless the namespace lost a search attribute that the request had.
pub(crate) async fn send(
    linked: &Linked,
    task_queue: &str,
    execution: ExecutionId,
    brief: &Brief,
    version: Option<&Definition>,
) -> Answer {
    let Linked { client, attributes } = linked;
    let names = attributes.names(client).await;
    let request = match request(client, task_queue, execution, brief, version).await {
        Ok(request) => request,
        Err(reason) => return Answer::Refused(reason),
    };
    let marks = marks(execution, brief, &names);
    let span = || tracing::debug_span!(spans::START_WORKFLOW.name, workflow_id = workflow_id(execution), task_queue);
    let answered = offer(client, request.clone(), marks.clone()).instrument(span()).await;
    if marks.is_none() || !matches!(answered, Answer::Refused(_)) {
        return answered;
    }
    let marked_now = self::marks(execution, brief, &*attributes.ask(client).await);
    if marked_now == marks { answered } else { offer(client, request, marked_now).instrument(span()).await }
}

/// One request, one answer.
async fn offer(client: &Client, request: StartWorkflowExecutionRequest, marks: Option<Marks>) -> Answer {
    let mut request = Request::new(StartWorkflowExecutionRequest { search_attributes: marks, ..request });
    request.set_timeout(CALL);
    match client.connection().workflow_service().start_workflow_execution(request).await {
        Ok(started) => answer(Ok(started.get_ref().started)),
        Err(status) => answer(Err(&status)),
    }
}

/// The search attributes of an execution, as far as the namespace has them.
fn marks(execution: ExecutionId, brief: &Brief, known: &BTreeSet<String>) -> Option<Marks> {
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
    brief: &Brief,
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
        workflow_id: workflow_id(execution),
        workflow_type: Some(WorkflowType { name: WORKFLOW.to_owned() }),
        task_queue: Some(TaskQueue { name: task_queue.to_owned(), ..TaskQueue::default() }),
        input: Some(Payloads { payloads: sealed(client, &input).await? }),
        // Even after the run has closed, a repeat of the same request is answered like the first.
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

/// A value as Temporal stores it: encrypted, if there are keys.
async fn sealed<T: TemporalSerializable + 'static>(client: &Client, value: &T) -> Result<Vec<Payload>, String> {
    let converter = &client.options().data_converter;
    let data = SerializationContextData::Workflow(WorkflowSerializationContext::new());
    let context = SerializationContext::new(&data, converter.payload_converter());
    let plain = converter.payload_converter().to_payloads(&context, value).map_err(|error| chain(&error))?;
    converter.codec().encode(&data, plain).await.map_err(|error| chain(&error))
}
