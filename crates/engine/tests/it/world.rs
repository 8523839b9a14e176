//! The environment of the scenarios, on either engine: a real database and a real receiver of calls.
//!
//! Not here: the engine (`host`, one for each), the scenarios (`conformance`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use engine::Engine;
use engine::outbound::{self, Outbound};
use kernel::definition::parse;
use kernel::execution;
use kernel::execution::rerun;
use kernel::ids::{ClaimId, DefinitionId, ExecutionId, NodeKey, ProcessId, WorkspaceId};
use kernel::queue::round_robin::Quota;
use kernel::queue::{Priority, StartOutcome};
use kernel::run::node;
use kernel::signals::trace::TraceParent;
use serde_json::{Value, json};
use store::definition::NewVersion;
use store::execution::{Execution, NodeRecord};
use store::new_id;
use store::process::{ProcessRegistration, register};
use store::queue::enqueue::{EnqueueOutcome, Start};
use store::testing::Database;
use store::wait::task::{self, TaskRequest};
use store::wait::{AnswerOutcome, WaitKey};
use store::workspace::NewWorkspace;

/// How long something may take to happen, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    found(what, async || holds().await.then_some(())).await;
}

/// Polls until there is a value.
pub(crate) async fn found<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Counts the calls it receives, by path and by idempotency token.
#[derive(Clone, Default)]
pub(crate) struct Receiver {
    calls: Arc<Mutex<BTreeMap<String, Vec<Instant>>>>,
    tokens: Arc<Mutex<Vec<String>>>,
    /// How often each `/flaky` path has answered.
    answered: Arc<Mutex<BTreeMap<String, u16>>>,
    traces: Arc<Mutex<BTreeSet<String>>>,
    /// Held by every call that was neither answered nor aborted.
    under_way: Arc<UnderWay>,
}

#[derive(Default)]
struct UnderWay(Arc<()>);

/// The trace that every start belongs to.
const TRACE: TraceParent =
    TraceParent { trace_id: 0x4bf92f3577b34da6a3ce929d0e0e4736, span_id: 0x00f067aa0ba902b7, sampled: true };

impl Receiver {
    pub(crate) fn calls(&self, path: &str) -> usize {
        self.times(path).len()
    }

    /// Waits until a path was called this often.
    pub(crate) async fn until_called(&self, path: &str, times: usize) {
        let what = format!("{path} is called {times} times");
        until(&what, async || self.calls(path) == times).await;
    }

    /// The times at which a path was called.
    pub(crate) fn times(&self, path: &str) -> Vec<Instant> {
        self.calls.lock().expect("whole").get(path).cloned().unwrap_or_default()
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.lock().expect("whole").clone()
    }

    /// True if no call is open any more. A call that was aborted a moment ago may still count for a short time.
    pub(crate) async fn is_at_rest(&self) -> bool {
        for _ in 0..100 {
            if Arc::strong_count(&self.under_way.0) == 1 {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    async fn listen(&self) -> SocketAddr {
        let router = Router::new().route("/{*path}", any(answer)).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }
}

/// `/ok` answers. `/status/503` answers with that status. `/again/503` does so once, with a `Retry-After` of a second.
/// `/flaky/2` fails twice, then answers. `/slow` takes long, `/late/20` that many milliseconds. `/big` answers with a
/// megabyte, `/nul` with a value that the database cannot store,
/// `/deep` with one that nobody can read again.
async fn answer(State(receiver): State<Receiver>, Path(path): Path<String>, headers: HeaderMap) -> Response {
    let _under_way = Arc::clone(&receiver.under_way.0);
    let given = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    receiver.tokens.lock().expect("whole").push(given("idempotency-key"));
    receiver.traces.lock().expect("whole").insert(given("traceparent"));
    let seen = {
        let mut calls = receiver.calls.lock().expect("whole");
        let count: &mut Vec<Instant> = calls.entry(format!("/{path}")).or_default();
        count.push(Instant::now());
        count.len()
    };
    let mut parts = path.split('/');
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u16>().ok()).unwrap_or(0);
    let status = match parts.next() {
        Some("status") => StatusCode::from_u16(number(parts.next())).unwrap_or(StatusCode::OK),
        Some("again") if seen == 1 => {
            let status = StatusCode::from_u16(number(parts.next())).unwrap_or(StatusCode::OK);
            return (status, [(header::RETRY_AFTER, "1")], axum::Json(Value::Null)).into_response();
        }
        Some("flaky") => {
            // A call that was aborted by a change of owner does not count: it is repeated as the same attempt.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut answered = receiver.answered.lock().expect("whole");
            let times = answered.entry(path.clone()).or_default();
            *times += 1;
            if *times <= number(parts.next()) { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
        }
        Some("late") => {
            tokio::time::sleep(Duration::from_millis(number(parts.next()).into())).await;
            StatusCode::OK
        }
        Some("slow") => {
            tokio::time::sleep(Duration::from_secs(30)).await;
            StatusCode::OK
        }
        _ => StatusCode::OK,
    };
    let body = match path.as_str() {
        "nul" => json!({ "text": "a\0b" }),
        "deep" => (0..126).fold(json!(1), |inner, _| json!([inner])),
        "big" => json!({ "text": "x".repeat(1_000_000) }),
        _ => json!({ "path": format!("/{path}") }),
    };
    (status, axum::Json(body)).into_response()
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

    /// A process that claims, and the clients that its nodes use for calls.
    pub(crate) async fn register(&self) -> (ProcessId, Outbound) {
        let id = ProcessId(new_id());
        let registration =
            ProcessRegistration { id, host: "test".to_owned(), pid: 1, roles: vec![], version: "test".to_owned() };
        register(&self.database.client().await, &registration).await.expect("a registration");
        let allow = vec![self.address.to_string().parse().expect("an address")];
        let outbound = Outbound::new(outbound::OutboundSettings { allow, ..Default::default() }).expect("a guard");
        (id, outbound)
    }

    /// Claims ready items, for an engine that begins with the claim or for one that is started afterwards.
    pub(crate) async fn claim(&self, process: ProcessId, engine: &dyn Engine) {
        let asks = [Quota { workspace: self.workspace, limit: 20 }];
        let (claim, store) = (ClaimId(new_id()), &self.database.store);
        let begins = engine.begins_with_claim().then(|| engine.name());
        let claims = store.claim(&asks, claim, process, begins).await.expect("a claim");
        for item in claims.items {
            match item.begun {
                Some(begun) => engine.run_begun(process, vec![begun]),
                None => {
                    let answer = engine.start(process, item.item.execution()).await;
                    assert!(matches!(answer, StartOutcome::Started), "{answer:?}");
                    store.mark_dispatched(&[item.item], claim).await.expect("marked");
                }
            }
        }
    }

    /// Runs a scenario once and returns its trace.
    pub(crate) async fn play(
        &self,
        process: ProcessId,
        engine: &dyn Engine,
        scenario: &Scenario,
    ) -> (ExecutionId, String) {
        let definition = self.publish(&scenario.document).await;
        let id = self.enqueue(definition, scenario.input.clone()).await;
        if let Act::Answer { node, data, early: true } = scenario.act {
            self.answer(id, engine, node, data).await;
        }
        if scenario.act != Act::CancelFirst {
            self.claim(process, engine).await;
        }
        self.act(id, engine, scenario.act).await;
        let mut trace = self.end_of(id).await;
        let mut id = id;
        if let Act::Rerun { from } = scenario.act {
            id = self.rerun(id, definition, from).await;
            self.claim(process, engine).await;
            trace.push_str("again\n");
            trace.push_str(&self.end_of(id).await);
        }
        (id, if scenario.act == Act::Summed { summed(&trace) } else { trace })
    }

    /// The trace of an execution once it has ended and left nothing behind: no slot, no queue item, no call.
    pub(crate) async fn end_of(&self, id: ExecutionId) -> String {
        let execution = self.ended(id).await;
        assert_eq!(self.leftovers().await, (0, 0), "no slot and no queue item is left");
        assert!(self.receiver.is_at_rest().await, "a call continues although its slot is free");
        let strange = self.receiver.traces.lock().expect("whole").iter().find(|it| **it != TRACE.to_string()).cloned();
        assert_eq!(strange, None, "every call belongs to the trace of its start");
        self.trace(&execution).await
    }

    /// Starts a rerun of the execution, from `failed` or from a node.
    pub(crate) async fn rerun(&self, of: ExecutionId, definition: DefinitionId, from: &str) -> ExecutionId {
        self.rerun_resolved(of, definition, from, &[]).await.expect("something to run")
    }

    /// The same, with a decision for each node whose outcome is unknown.
    pub(crate) async fn rerun_resolved(
        &self,
        of: ExecutionId,
        definition: DefinitionId,
        from: &str,
        resolve: &[(&str, rerun::Resolution)],
    ) -> Result<ExecutionId, rerun::RerunError> {
        let key = |name: &str| NodeKey::new(name).expect("a good name");
        let from = match from {
            "failed" => rerun::StartFrom::Failed,
            node => rerun::StartFrom::Node(key(node)),
        };
        let resolve = resolve.iter().map(|(name, resolve)| (key(name), *resolve)).collect();
        let store = &self.database.store;
        let old = store.execution(of, None).await.expect("the execution");
        let graph = store.graphs(&[old.version]).await.expect("its graph").remove(0).1;
        let (graph, plan) = parse::check_stored(&graph).expect("a plan");
        let rows = store.node_states(of).await.expect("its nodes");
        let ended = rows.into_iter().map(|row| (row.node, row.status)).collect();
        let kept = rerun::keep_nodes(&graph, &ended, (&graph, &plan), true, &from, &resolve)?;
        let start = Start {
            trigger: rerun::trigger(of, "test", &from, kept.len()),
            version: Some(old.version),
            rerun_of: Some(of),
            ..self.new_start(definition, old.input.unwrap_or_default())
        };
        match store.rerun(&start, &kept, None, "test").await.expect("an answer") {
            EnqueueOutcome::New { execution, .. } => Ok(execution),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn act(&self, id: ExecutionId, engine: &dyn Engine, act: Act) {
        match act {
            Act::Nothing | Act::Summed | Act::Rerun { .. } | Act::Answer { early: true, .. } => return,
            Act::Answer { node, data, early: false } => {
                let open = format!("workflow_execution_wait WHERE node = '{node}' AND status = 'OPEN'");
                self.until_count(&open).await;
                return self.answer(id, engine, node, data).await;
            }
            Act::Work { queue, ends } => return self.work(engine, queue, ends).await,
            Act::CancelChild { node } => {
                let child = self.child_in_flight(node).await;
                self.database.store.cancel(child, self.workspace, "test").await.expect("a cancel");
                engine.cancel(child);
                return engine.signal(id);
            }
            Act::CancelFirst => {}
            Act::CancelAbove { node } => drop(self.child_in_flight(node).await),
            Act::CancelWhen { node, status } => self.until_node(id, node, status).await,
        }
        self.database.store.cancel(id, self.workspace, "test").await.expect("a cancel");
        engine.cancel(id);
    }

    /// Answers a wait, and notifies the run.
    async fn answer(&self, id: ExecutionId, engine: &dyn Engine, node: &str, data: &str) {
        let place = WaitKey { execution: id, node: NodeKey::new(node).expect("a good name"), iteration: 0 };
        let data = serde_json::from_str(data).expect("JSON");
        let observed = self.database.store.answer(&place, None, &data, "key:test").await.expect("an answer");
        match observed {
            AnswerOutcome::Accepted(Some(call)) => engine.signal(call.holder),
            AnswerOutcome::Early => {}
            other => panic!("{other:?}"),
        }
    }

    /// Performs tasks of a queue, one after the other: `ok`, or why they fail.
    async fn work(&self, engine: &dyn Engine, queue: &str, ends: &[&str]) {
        let (store, queues) = (&self.database.store, [queue.to_owned()]);
        for end in ends {
            let wanted = TaskRequest {
                queues: &queues,
                worker: "w",
                most: 1,
                lease: None,
                workspace: Some(self.workspace),
                after: None,
            };
            let task = found("a task", async || store.claim_tasks(&wanted).await.expect("a claim").0.pop()).await;
            let output = json!({ "did": task.input });
            let failure = kernel::kind::task::failed(end, *end != "never");
            let result = if *end == "ok" { Ok(&output) } else { Err(&failure) };
            let claim = task.claim.expect("a claim");
            match store.end_task(task.id, None, claim, result).await.expect("an end") {
                task::EndTaskOutcome::Accepted(Some(call)) => engine.signal(call.holder),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The child of a node, once one of its own nodes runs.
    async fn child_in_flight(&self, node: &str) -> ExecutionId {
        let sql = "SELECT e.id FROM workflow_execution e JOIN workflow_execution_node n ON n.execution_id = e.id
                    WHERE e.parent_node = $1 AND n.status = 'RUNNING'";
        let client = self.database.client().await;
        let look =
            async || client.query(sql, &[&node]).await.expect("a look").first().map(|row| ExecutionId(row.get(0)));
        found(&format!("a child of {node} runs"), look).await
    }

    pub(crate) async fn until_count(&self, what: &str) {
        let client = self.database.client().await;
        let count = &format!("SELECT count(*) FROM {what}");
        until(what, async || client.query_one(count, &[]).await.expect("a count").get::<_, i64>(0) > 0).await;
    }

    async fn until_node(&self, id: ExecutionId, node: &str, status: node::Status) {
        until(&format!("{node} becomes {}", status.name()), async || {
            let nodes = self.database.store.nodes(id).await.expect("nodes");
            nodes.iter().any(|row| row.node == node && row.status == status)
        })
        .await;
    }

    /// Publishes a graph document, in which `BASE` stands for the receiver's address. First publishes the documents in
    /// its `workflows`, by their names.
    /// From now on the database refuses the output "refused", as if it were a value that it cannot store.
    pub(crate) async fn refuse_an_output(&self) {
        let refuse = "ALTER TABLE workflow_execution_node ADD CONSTRAINT refused
            CHECK (output IS DISTINCT FROM '\"refused\"'::jsonb)";
        self.database.client().await.batch_execute(refuse).await.expect("a constraint");
    }

    pub(crate) async fn publish(&self, document: &Value) -> DefinitionId {
        let mut document = document.clone();
        let others = document.as_object_mut().and_then(|fields| fields.remove("workflows")).unwrap_or_default();
        for (name, other) in others.as_object().into_iter().flatten() {
            self.publish_as(name, other).await;
        }
        self.publish_as(&new_id().to_string(), &document).await
    }

    async fn publish_as(&self, name: &str, document: &Value) -> DefinitionId {
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
        let (id, stored) = store.create_definition(self.workspace, name, &version, "test").await.expect("a definition");
        store.publish(self.workspace, id, stored.id, &version, "test").await.expect("published");
        id
    }

    fn new_start(&self, definition: DefinitionId, input: Value) -> Start {
        Start {
            execution: ExecutionId(new_id()),
            workspace: self.workspace,
            definition,
            input: Some(input),
            priority: Priority::USUAL,
            run_at: None,
            concurrency_key: None,
            idempotency: None,
            trigger: json!({ "type": "test" }),
            trace: Some(TRACE),
            version: None,
            rerun_of: None,
        }
    }

    pub(crate) async fn enqueue(&self, definition: DefinitionId, input: Value) -> ExecutionId {
        let start = self.new_start(definition, input);
        match self.database.store.enqueue(&[start], "test").await.expect("an answer")[0] {
            EnqueueOutcome::New { execution, .. } => execution,
            other => panic!("{other:?}"),
        }
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
        panic!("{id} did not end in time: {:?}", self.database.store.nodes(id).await);
    }

    /// The stored state of an execution as a text to compare: each node in the order in which they settled, the end,
    /// and the audit. Nodes that a stop canceled are one commit, and are sorted by name. Ids and times are left out.
    pub(crate) async fn trace(&self, execution: &Execution) -> String {
        let mut lines = self.tree_lines(execution).await;
        let sql = "SELECT action FROM audit WHERE subject_id = $1 ORDER BY at";
        let rows = self.database.client().await.query(sql, &[&execution.id.0]).await.expect("the audit");
        lines.extend(rows.iter().map(|row| format!("audited {}", row.get::<_, &str>(0))));
        let sql = "SELECT 'event ' || event_type || ' ' || stream_type || ' ' || stream_version || ' ' || event_data FROM domain_events
                    WHERE event_metadata ->> 'execution_id' = $1 ORDER BY sequence";
        let rows = self.database.client().await.query(sql, &[&execution.id.to_string()]).await.expect("the events");
        lines.extend(rows.iter().map(|row| row.get::<_, String>(0)));
        lines.join("\n") + "\n"
    }

    /// The nodes and the end of an execution, the items of its loops in order, and below them its child executions.
    async fn tree_lines(&self, execution: &Execution) -> Vec<String> {
        let store = &self.database.store;
        let mut nodes = store.nodes(execution.id).await.expect("nodes");
        nodes.sort_by_key(|node| (node.status == node::Status::Canceled).then(|| node.node.clone()));
        let mut lines = Vec::new();
        for node in &nodes {
            lines.push(node_line(node));
            let key = NodeKey::new(&node.node).expect("a key");
            let items = store.iteration_records(execution.id, &key, 0, 100, true).await.expect("items").rows;
            lines.extend(items.iter().map(|item| format!("  [{}] {}", item.iteration, node_line(item))));
        }
        lines.push(end_line(execution));
        let tree = store.tree(execution.root, 1_000).await.expect("a tree");
        let mut children: Vec<_> = tree
            .into_iter()
            .filter_map(|child| {
                Some((child.parent.filter(|parent| parent.execution == execution.id)?, child.execution))
            })
            .collect();
        children.sort_by_key(|(place, _)| (place.node.clone(), place.iteration, place.attempt));
        for (place, child) in children {
            let which = format!("{} {}.{}", place.node, place.iteration, place.attempt);
            let child = store.execution(child, None).await.expect("the child");
            let below = Box::pin(self.tree_lines(&child)).await;
            lines.extend(below.iter().map(|line| format!("  {which} > {line}")));
        }
        lines
    }

    /// Slots still held, and queue items that are not dead letters.
    pub(crate) async fn leftovers(&self) -> (i64, i64) {
        let sql = "SELECT count(*) FILTER (WHERE stage = 5), count(*) FILTER (WHERE stage <> 9) FROM execution_queue";
        let row = self.database.client().await.query_one(sql, &[]).await.expect("counts");
        (row.get(0), row.get(1))
    }
}

/// One execution to run, and what somebody does during it.
pub(crate) struct Scenario {
    pub(crate) document: Value,
    pub(crate) input: Value,
    pub(crate) act: Act,
}

/// What somebody does while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    /// Nothing. Nodes that ran side by side are summarized.
    Summed,
    /// Reruns it when it has ended, from `failed` or from a node.
    Rerun {
        from: &'static str,
    },
    /// Answers one of its waits: before it is open, or once it is open.
    Answer {
        node: &'static str,
        data: &'static str,
        early: bool,
    },
    /// Serves a queue as its worker, for as many tasks as there are ends.
    Work {
        queue: &'static str,
        ends: &'static [&'static str],
    },
    /// Cancels the child of a node, once it is in flight.
    CancelChild {
        node: &'static str,
    },
    /// Cancels the execution once the child of a node is in flight.
    CancelAbove {
        node: &'static str,
    },
    /// Cancels the execution before it is claimed.
    CancelFirst,
    /// Cancels the execution as soon as a node has this status.
    CancelWhen {
        node: &'static str,
        status: node::Status,
    },
}

fn node_line(node: &NodeRecord) -> String {
    let label = node.label.as_ref().map(|label| format!(" took {label}")).unwrap_or_default();
    let attempt = if node.attempt > 1 { format!(" at attempt {}", node.attempt) } else { String::new() };
    let class = node.error.as_ref().and_then(|error| error["type"].as_str()).map(|class| format!(": {class}"));
    let earlier = node.earlier.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    let earlier: Vec<&str> = earlier.iter().filter_map(|one| one["error"]["type"].as_str()).collect();
    let earlier = if earlier.is_empty() { String::new() } else { format!(" after {}", earlier.join(", ")) };
    let output = node.output.as_ref().map(|output| format!(" {}", shown(output))).unwrap_or_default();
    let kept = if node.kept_from.is_some() { " kept" } else { "" };
    format!("{} {}{kept}{label}{attempt}{earlier}{}{output}", node.node, node.status.name(), class.unwrap_or_default())
}

/// An output without the parts that differ from call to call, truncated to a line.
fn shown(output: &Value) -> String {
    let mut output = output.clone();
    if let Some(fields) = output.as_object_mut() {
        for name in ["headers", "event_id", "stream_id", "execution_id", "at"] {
            fields.remove(name);
        }
        if let Some(items) = fields.get_mut("items").and_then(Value::as_array_mut) {
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                item.remove("headers");
                item.remove("execution_id");
            }
        }
    }
    let text = output.to_string();
    match text.char_indices().nth(90) {
        Some((at, _)) => format!("{}… {} bytes", &text[..at], text.len()),
        None => text,
    }
}

/// How many lines there are of each kind, whatever their names.
fn summed(trace: &str) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for line in trace.lines() {
        *counts.entry(line.split_once(' ').map_or(line, |(_, rest)| rest)).or_default() += 1;
    }
    counts.iter().map(|(line, count)| format!("{count} × {line}\n")).collect()
}

fn end_line(execution: &Execution) -> String {
    let class = execution.error.as_ref().and_then(|error| error["type"].as_str()).map(|class| format!(": {class}"));
    let output = execution.output.as_ref().map(|output| format!(" {}", shown(output)));
    let status = match execution.status {
        execution::Status::Completed => "ended COMPLETED",
        execution::Status::Failed => "ended FAILED",
        execution::Status::Canceled => "ended CANCELED",
        execution::Status::TimedOut => "ended TIMED_OUT",
        execution::Status::Pending | execution::Status::Running => "not ended",
    };
    format!("{status}{}{}", class.unwrap_or_default(), output.unwrap_or_default())
}
