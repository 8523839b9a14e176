//! What Temporal stores about a run: the number of events, the bytes, and the content of the first event.

use anyhow::{Context, Result, ensure};
use prost::Message;
use serde_json::json;
use temporalio_client::{Client, UntypedWorkflow};
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::history::v1::{History, HistoryEvent};

use super::end_to_end;
use super::server::TemporalServer;
use super::site::Site;
use crate::cluster::Cluster;
use crate::measure::served::Service;
use crate::measure::world::{Backlog, READY, World};

/// All events of a workflow's run.
pub(super) async fn events(client: &Client, workflow: &str) -> Result<Vec<HistoryEvent>> {
    let handle = client.get_workflow_handle::<UntypedWorkflow>(workflow);
    handle.fetch_history(Default::default()).into_events().await.context("fetch a history")
}

/// The size of a start request on the server, without the ids that differ between executions.
#[derive(Debug, PartialEq)]
pub(super) struct HistorySize {
    kind: Option<String>,
    task_queue: Option<String>,
    memo: Vec<(String, usize)>,
    attributes: Vec<(String, usize)>,
    input: Vec<usize>,
    /// The priority, the length of the fairness key, and its weight.
    priority: Option<(i32, usize, f32)>,
}

/// Reads a run's first event.
pub(super) async fn history_size(client: &Client, workflow: &str) -> Result<HistorySize> {
    let events = events(client, workflow).await?;
    let Some(Attributes::WorkflowExecutionStartedEventAttributes(first)) =
        events.into_iter().next().and_then(|event| event.attributes)
    else {
        anyhow::bail!("the history of {workflow} does not begin with a start event");
    };
    let sizes = |mut fields: Vec<(String, usize)>| {
        fields.sort();
        fields
    };
    let memo = first.memo.map(|memo| memo.fields).unwrap_or_default();
    let attributes = first.search_attributes.map(|all| all.indexed_fields).unwrap_or_default();
    Ok(HistorySize {
        kind: first.workflow_type.map(|kind| kind.name),
        task_queue: first.task_queue.map(|queue| queue.name),
        memo: sizes(memo.into_iter().map(|(name, value)| (name, value.data.len())).collect()),
        attributes: sizes(attributes.into_iter().map(|(name, value)| (name, value.data.len())).collect()),
        input: first.input.map(|input| input.payloads.iter().map(|one| one.data.len()).collect()).unwrap_or_default(),
        priority: first.priority.map(|it| (it.priority_key, it.fairness_key.len(), it.fairness_weight)),
    })
}

/// Runs an execution with an output of a megabyte. Returns the size of its history in bytes.
pub(super) async fn measure_megabyte_output(cluster: &Cluster) -> Result<usize> {
    let (server, site) = (TemporalServer::start().await?, Site::start().await?);
    let world = World::create(cluster, "history").await?;
    let call = json!({ "kind": "HTTP_REQUEST", "with": { "url": site.url("/big"), "max_response_bytes": 2_000_000 } });
    let say = json!({ "kind": "TRANSFORM", "needs": "big", "with": { "value": "${{ nodes.big.output.body.text }}" } });
    let document = json!({ "version": 1, "name": "big", "nodes": { "big": call, "again": say },
                           "outputs": "${{ nodes.again.output }}" });
    let tenant = world.tenant_in(None, 1, 1, &document).await?;
    world.leave_to_service().await?;
    let settings = [server.service_settings(), vec![site.allowed()]].concat();
    let service = Service::start(&world, &settings).await?;
    world.load(&[tenant], Backlog { waiting: 1, ..READY }).await?;
    end_to_end::notify_dispatchers(&world, &[tenant]).await?;
    end_to_end::all_ended(&world, &[tenant], 1).await?;
    let sql = "SELECT id, coalesce(length(output::text) >= 1000000, false) FROM workflow_execution";
    let row = world.client.query_one(sql, &[]).await?;
    ensure!(row.try_get::<_, bool>(1)?, "the execution has no output of a megabyte");
    let workflow = format!("execution-{}", row.try_get::<_, uuid::Uuid>(0)?);
    let events = end_to_end::wait_until_closed(&server.client().await?, &workflow).await?;
    service.stop().await?;
    server.stop().await?;
    Ok(History { events }.encoded_len())
}
