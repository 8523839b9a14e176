//! One workspace with its own key, and the requests that its users make.

use serde_json::{Value, json};

use super::http::{Api, Reply};
use super::until;

const ENDS: [&str; 4] = ["COMPLETED", "FAILED", "CANCELED", "TIMED_OUT"];

#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Asks with the workspace's key.
    pub(crate) api: Api,
}

impl Tenant {
    pub(crate) async fn new(root: Api, tier: &str) -> Tenant {
        let name = format!("w-{}", store::new_id().simple());
        let made = root.post("workspaces", json!({ "name": name, "tier": tier })).await.expect(201);
        let id = text(&made["id"]);
        let key = root.post("keys", json!({ "name": "test", "workspaceId": id })).await.expect(201);
        Tenant { id, name, api: root.with_key(&text(&key["key"])) }
    }

    /// The same tenant, asking another server.
    pub(crate) fn at(&self, base: &str) -> Tenant {
        Tenant { api: self.api.at(base), ..self.clone() }
    }

    /// Publishes a graph and answers its definition's id.
    pub(crate) async fn apply(&self, name: &str, nodes: Value) -> String {
        let body = json!({ "document": { "name": name, "nodes": nodes } });
        text(&self.api.post("workflow/definitions/apply", body).await.expect(200)["definition"]["id"])
    }

    /// A workflow that only says something.
    pub(crate) async fn light(&self) -> String {
        self.apply("light", json!({ "say": { "kind": "LOG", "with": { "message": "done" } } })).await
    }

    pub(crate) async fn try_start(&self, definition: &str) -> Reply {
        self.api.post("workflow/executions/start", json!({ "workflowDefinitionId": definition })).await
    }

    pub(crate) async fn start(&self, definition: &str) -> String {
        text(&self.try_start(definition).await.expect(202)["executionId"])
    }

    pub(crate) async fn start_many(&self, definition: &str, count: usize) -> Vec<String> {
        let mut started = Vec::new();
        for _ in 0..count {
            started.push(self.start(definition).await);
        }
        started
    }

    pub(crate) async fn execution(&self, id: &str) -> Value {
        self.api.get(&format!("workflow/executions/{id}")).await.expect(200)
    }

    pub(crate) async fn status(&self, id: &str) -> String {
        text(&self.execution(id).await["status"])
    }

    pub(crate) async fn queue(&self, id: &str) -> Value {
        self.api.get(&format!("workflow/queue/{id}")).await.expect(200)
    }

    /// The execution once it ended.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        until(&format!("{id} ends"), async || {
            let execution = self.api.get(&format!("workflow/executions/{id}?wait=5s")).await.expect(200);
            ENDS.contains(&execution["status"].as_str().unwrap_or_default()).then_some(execution)
        })
        .await
    }

    /// The execution once it completed; any other end fails the test.
    pub(crate) async fn completed(&self, id: &str) -> Value {
        let execution = self.ended(id).await;
        assert_eq!(execution["status"], "COMPLETED", "{execution}");
        execution
    }

    /// What its nodes came to: `{node: status}`.
    pub(crate) async fn nodes(&self, id: &str) -> Value {
        let nodes = self.api.get(&format!("workflow/executions/{id}/nodes")).await.expect(200);
        let items = nodes["items"].as_array().expect("a list").iter();
        items.map(|node| (text(&node["node"]), node["status"].clone())).collect::<serde_json::Map<_, _>>().into()
    }

    /// How many executions hold a slot.
    pub(crate) async fn running(&self) -> i64 {
        let workspace = self.api.get(&format!("workspaces/{}", self.id)).await.expect(200);
        workspace["running"].as_i64().expect("a number")
    }
}

/// A text of an answer.
#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}
