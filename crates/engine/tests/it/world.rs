//! A real database, a real engine and a receiver that is called for real.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::any;
use engine::Engine;
use engine::embedded::{Embedded, NAME, Settings};
use engine::outbound::{self, Outbound};
use engine::pulse::Pulse;
use kernel::ids::{ClaimId, DefinitionId, ExecutionId, ProcessId, WorkspaceId};
use kernel::queue::Priority;
use kernel::ring::Ask;
use kernel::{execution, parse};
use serde_json::{Value, json};
use store::admission::Silence;
use store::definition::NewVersion;
use store::enqueue::{Accepted, Start};
use store::execution::{Execution, NodeRecord};
use store::new_id;
use store::process::{Registration, register};
use store::testing::Database;
use store::workspace::NewWorkspace;

/// Counts what reaches it, by path and by idempotency token.
#[derive(Clone, Default)]
pub(crate) struct Receiver {
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
    tokens: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    pub(crate) fn calls(&self, path: &str) -> usize {
        self.calls.lock().expect("whole").get(path).copied().unwrap_or(0)
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.lock().expect("whole").clone()
    }

    async fn listen(&self) -> SocketAddr {
        let router = Router::new().route("/{*path}", any(answer)).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }
}

/// `/ok` answers; `/status/503` answers that; `/flaky/2` fails twice, then answers; `/slow` takes its time;
/// `/nul` answers with what no database can hold.
async fn answer(State(receiver): State<Receiver>, Path(path): Path<String>, headers: HeaderMap) -> impl IntoResponse {
    let token = headers.get("idempotency-key").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    receiver.tokens.lock().expect("whole").push(token);
    let seen = {
        let mut calls = receiver.calls.lock().expect("whole");
        let count = calls.entry(format!("/{path}")).or_default();
        *count += 1;
        *count
    };
    let mut parts = path.split('/');
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u16>().ok()).unwrap_or(0);
    let status = match parts.next() {
        Some("status") => StatusCode::from_u16(number(parts.next())).unwrap_or(StatusCode::OK),
        Some("flaky") if seen <= usize::from(number(parts.next())) => StatusCode::INTERNAL_SERVER_ERROR,
        Some("slow") => {
            tokio::time::sleep(Duration::from_secs(30)).await;
            StatusCode::OK
        }
        _ => StatusCode::OK,
    };
    let body = if path == "nul" { json!({ "text": "a\0b" }) } else { json!({ "seen": seen }) };
    (status, axum::Json(body))
}

/// Everything a scenario needs.
pub(crate) struct World {
    pub(crate) database: Database,
    pub(crate) receiver: Receiver,
    pub(crate) address: SocketAddr,
    pub(crate) workspace: WorkspaceId,
}

impl World {
    pub(crate) async fn new() -> World {
        let database = Database::new().await;
        let receiver = Receiver::default();
        let address = receiver.listen().await;
        let workspace = WorkspaceId(new_id());
        let new = NewWorkspace {
            id: workspace,
            name: "w".to_owned(),
            tier: "ENTERPRISE".to_owned(),
            limit_override: None,
            weight: 1,
            max_backlog: None,
        };
        database.store.create_workspace(&new, "test").await.expect("a workspace");
        World { database, receiver, address, workspace }
    }

    /// A process of its own, with its engine.
    pub(crate) async fn process(&self) -> Process {
        let id = ProcessId(new_id());
        let registration =
            Registration { id, host: "test".to_owned(), pid: 1, roles: vec![], version: "test".to_owned() };
        register(&self.database.client().await, &registration).await.expect("a registration");
        let allow = vec![self.address.to_string().parse().expect("an address")];
        let outbound = Outbound::new(outbound::Settings { allow, ..Default::default() }).expect("a guard");
        let settings = Settings { max_runs: 100, max_calls: 100 };
        let pulse = Arc::new(Pulse::new(Duration::from_secs(3600)));
        let engine = Embedded::new(self.database.store.clone(), outbound, settings, pulse, Arc::new(|_, _| {}));
        engine.assume(id);
        Process { id, engine }
    }

    /// Publishes a graph document, in which `BASE` stands for the receiver's address.
    pub(crate) async fn publish(&self, document: &Value) -> DefinitionId {
        let text = document.to_string().replace("BASE", &format!("http://{}", self.address));
        let document: Value = serde_json::from_str(&text).expect("still JSON");
        let (definition, _) = parse::check(&document).unwrap_or_else(|problems| panic!("{problems:?}"));
        let version = NewVersion {
            graph: serde_json::to_value(&definition).expect("a graph"),
            content_hash: parse::content_hash(&definition),
            source: None,
            timeout_ms: definition.timeout_ms.and_then(|timeout| i64::try_from(timeout).ok()),
            concurrency: None,
            key_concurrency: None,
            max_attempts: None,
        };
        let store = &self.database.store;
        let name = new_id().to_string();
        let (id, stored) =
            store.create_definition(self.workspace, &name, &version, "test").await.expect("a definition");
        store.publish(self.workspace, id, stored.id, &version, "test").await.expect("published");
        id
    }

    pub(crate) async fn enqueue(&self, definition: DefinitionId, input: Value) -> ExecutionId {
        let start = Start {
            execution: ExecutionId(new_id()),
            workspace: self.workspace,
            definition,
            input: Some(input),
            priority: Priority::USUAL,
            run_at: None,
            concurrency_key: None,
            idempotency: None,
            trigger: json!({ "type": "test" }),
            trace: None,
            version: None,
            rerun_of: None,
        };
        match self.database.store.enqueue(&[start], "test").await.expect("an answer")[0] {
            Accepted::New { execution, .. } => execution,
            other => panic!("{other:?}"),
        }
    }

    /// Claims what is ready and hands it to the process's engine.
    pub(crate) async fn dispatch(&self, process: &Process) {
        let asks = [Ask { workspace: self.workspace, want: 20 }];
        let claim = ClaimId(new_id());
        let store = &self.database.store;
        let claims = store.claim(&asks, claim, process.id, Some(NAME)).await.expect("a claim");
        process.engine.adopt(process.id, claims.items.into_iter().filter_map(|item| item.begun).collect());
    }

    /// Waits for the execution to end.
    pub(crate) async fn ended(&self, id: ExecutionId) -> Execution {
        self.until(id, |execution| execution.status.is_terminal()).await
    }

    pub(crate) async fn until(&self, id: ExecutionId, holds: impl Fn(&Execution) -> bool) -> Execution {
        for _ in 0..3_000 {
            let execution = self.database.store.execution(id, None).await.expect("the execution");
            if holds(&execution) {
                return execution;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{id} did not get there: {:?}", self.database.store.nodes(id).await);
    }

    /// The process is gone; another takes its runs over.
    pub(crate) async fn take_over(&self, from: Process) -> Process {
        from.engine.abandon();
        from.engine.gone().await;
        self.database.store.end_process(from.id).await.expect("ended");
        let to = self.process().await;
        let silence = Silence { dead_after: Duration::from_secs(15), steady: false };
        let store = &self.database.store;
        let orphans = store.adopt_orphans(&[self.workspace.shard()], to.id, silence, NAME, 100).await.expect("orphans");
        let ids: Vec<ExecutionId> = orphans.iter().map(|orphan| orphan.execution).collect();
        to.engine.resume(to.id, &ids, false).await.expect("resumed");
        to
    }

    /// What is stored of an execution, as a text to compare.
    pub(crate) async fn trace(&self, execution: &Execution) -> String {
        let mut lines: Vec<String> =
            self.database.store.nodes(execution.id).await.expect("nodes").iter().map(node_line).collect();
        lines.push(end_line(execution));
        lines.join("\n") + "\n"
    }

    /// Slots still held, and tickets that are not dead letters.
    pub(crate) async fn leftovers(&self) -> (i64, i64) {
        let sql = "SELECT count(*) FILTER (WHERE stage = 5), count(*) FILTER (WHERE stage <> 9) FROM execution_queue";
        let row = self.database.client().await.query_one(sql, &[]).await.expect("counts");
        (row.get(0), row.get(1))
    }
}

pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) engine: Embedded,
}

fn node_line(node: &NodeRecord) -> String {
    let label = node.label.as_ref().map(|label| format!(" took {label}")).unwrap_or_default();
    let attempt = if node.attempt > 1 { format!(" at attempt {}", node.attempt) } else { String::new() };
    let class = node.error.as_ref().and_then(|error| error["type"].as_str()).map(|class| format!(": {class}"));
    format!("{} {}{label}{attempt}{}", node.node, node.status.name(), class.unwrap_or_default())
}

fn end_line(execution: &Execution) -> String {
    let class = execution.error.as_ref().and_then(|error| error["type"].as_str()).map(|class| format!(": {class}"));
    let output = execution.output.as_ref().map(|output| format!(" {output}"));
    let status = match execution.status {
        execution::Status::Completed => "ended COMPLETED",
        execution::Status::Failed => "ended FAILED",
        execution::Status::Canceled => "ended CANCELED",
        execution::Status::TimedOut => "ended TIMED_OUT",
        execution::Status::Pending | execution::Status::Running => "not ended",
    };
    format!("{status}{}{}", class.unwrap_or_default(), output.unwrap_or_default())
}
