//! The load: executions with calls, waits, loops and children; answers to the waits; and events that start further
//! executions.
//!
//! Invariants
//! - Every request is repeated until it is answered. Starts are repeated with the same key, events with the same ids,
//!   and answers until one is accepted.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::chaos::api::{Api, StartRequest};
use crate::chaos::setup::Tenant;
use crate::receiver::Receiver;

/// The event that starts a workflow.
pub(super) const ORDERED: &str = "strays.ordered";
/// How long a request may stay unanswered before the run fails.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// The positions of the workflows in `documents`.
pub(super) const WHOLE: usize = 1;
pub(super) const OF_EVENTS: usize = 2;
pub(super) const ENDLESS: usize = 3;

/// The workflows: one for a child, one with everything, one that an event starts, and one that waits until it is ended.
pub(super) fn documents(receiver: &Receiver) -> Vec<Value> {
    let call = |node: &str| {
        json!({ "kind": "HTTP_REQUEST", "retry": { "max_attempts": 1 },
        "with": receiver.node(node, false) })
    };
    let mut once = call("once");
    once["delivery"] = json!("at_most_once");
    let mut item = call("item");
    item["with"]["query"]["iteration"] = json!("${{ index + 1 }}");
    let mut last = call("last");
    last["needs"] = json!(["plain", "once", "child", "each", "said", "pause"]);
    let nodes = json!({
        "plain": call("plain"),
        "once": once,
        "ask": { "kind": "WAIT_FOR_EVENT", "with": {} },
        "child": { "kind": "WORKFLOW", "with": { "workflow": "below", "input": { "n": "${{ inputs.n }}" } } },
        "each": { "kind": "FOR_EACH", "with": { "items": [1, 2, 3], "parallel": 2, "do": item } },
        "said": { "kind": "EMIT_EVENT", "needs": "ask", "with": { "type": "strays.said", "data": {} } },
        "pause": { "kind": "DELAY", "with": { "for": "200ms" } },
        "last": last,
    });
    let document = |name: &str, nodes: Value| json!({ "version": 1, "name": name, "nodes": nodes });
    let endless = json!({ "ask": { "kind": "WAIT_FOR_EVENT", "with": {} } });
    vec![
        document("below", json!({ "call": call("below") })),
        document("whole", nodes),
        document("ordered", json!({ "call": ordered(receiver) })),
        document("endless", endless),
    ]
}

/// A call that takes its number from the event.
fn ordered(receiver: &Receiver) -> Value {
    let mut with = receiver.node("ordered", false);
    with["query"]["n"] = json!("${{ trigger.event.data.n }}");
    json!({ "kind": "HTTP_REQUEST", "retry": { "max_attempts": 1 }, "with": with })
}

/// The client of the load.
#[derive(Clone, Debug)]
pub(super) struct StraysLoad {
    pub(super) api: Api,
    pub(super) http: reqwest::Client,
    pub(super) key: String,
    pub(super) tenant: Tenant,
}

impl StraysLoad {
    /// Binds the event to its workflow.
    pub(super) async fn bind(&self) -> anyhow::Result<()> {
        let definition = self.tenant.definitions[OF_EVENTS].id;
        let body = json!({ "workspaceId": self.tenant.id, "eventType": ORDERED, "workflowDefinitionId": definition });
        self.api.post(0, "bindings", &body).await.map(drop)
    }

    pub(super) async fn start(&self, document: usize, n: i64) -> Uuid {
        let (workspace, definition) = (self.tenant.id, self.tenant.definitions[document].id);
        let request = StartRequest { workspace, definition, input: json!({ "n": n }), key: format!("strays-{n}") };
        self.api.start(usize::try_from(n).unwrap_or_default() % self.api.places(), &request).await
    }

    /// Starts this many executions, answers each, and appends as many events. Returns what was accepted.
    pub(super) async fn round(&self, numbers: std::ops::Range<i64>) -> anyhow::Result<Accepted> {
        let mut retrying_client = JoinSet::new();
        for n in numbers {
            let (load, event) = (self.clone(), store::new_id());
            retrying_client.spawn(async move {
                let execution = load.start(WHOLE, n).await;
                // Some answers come before the wait opens, the others while the run waits.
                tokio::time::sleep(PAUSE * u32::try_from(n % 8).unwrap_or_default()).await;
                load.answer(execution, n).await?;
                load.append(event, n).await?;
                anyhow::Ok((execution, event))
            });
        }
        let mut accepted = Accepted::default();
        while let Some(done) = retrying_client.join_next().await {
            let (execution, event) = done.context("a client stopped early")??;
            accepted.executions.push(execution);
            accepted.events.push(event);
        }
        Ok(accepted)
    }

    async fn answer(&self, execution: Uuid, n: i64) -> anyhow::Result<()> {
        let path = format!("workflow/executions/{execution}/waits/ask/answer");
        self.retry_until_answered(&path, &json!({ "data": { "n": n } }), n).await
    }

    async fn append(&self, event: Uuid, n: i64) -> anyhow::Result<()> {
        let one =
            json!({ "id": event, "type": ORDERED, "streamId": event, "streamType": "strays", "data": { "n": n } });
        self.retry_until_answered("events", &json!({ "workspaceId": self.tenant.id, "events": [one] }), n).await
    }

    /// Repeats a request until it is answered. "Already done" is an answer too.
    async fn retry_until_answered(&self, path: &str, body: &Value, turn: i64) -> anyhow::Result<()> {
        let (began, mut turn) = (Instant::now(), usize::try_from(turn).unwrap_or_default());
        loop {
            let last = match self.post(path, body, turn).await {
                Ok(status) if status.is_success() || status == StatusCode::CONFLICT => return Ok(()),
                Ok(status) if status.is_client_error() => bail!("{path} was answered {status}"),
                other => format!("{other:?}"),
            };
            if began.elapsed() > PATIENCE {
                bail!("{path} has no answer: {last}");
            }
            turn += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends one request, and returns its status.
    pub(super) async fn post(&self, path: &str, body: &Value, turn: usize) -> anyhow::Result<StatusCode> {
        let healthy = self.api.healthy();
        let place = healthy.get(turn % healthy.len().max(1)).context("no process is running")?;
        let base = self.api.base(*place).context("no process is running")?;
        let request = self.http.post(format!("{base}/api/v1/{path}")).bearer_auth(&self.key).json(body);
        Ok(request.send().await?.status())
    }
}

/// What the service has accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct Accepted {
    pub(super) executions: Vec<Uuid>,
    pub(super) events: Vec<Uuid>,
}
