//! Support for the tests: a database with workspaces, published definitions and start requests, and helpers for races.
//!
//! Invariants
//! - Nothing here waits for time to pass: a test waits on a condition, or changes a stored time.
//! - `judge` checks every claim at its commit, while the shard's lock is still held.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::execution;
use kernel::ids::{ClaimId, DefinitionId, ExecutionId, NodeKey, ProcessId, QueueItemId, WorkspaceId};
use kernel::queue::Priority;
use kernel::queue::round_robin::Quota;
use kernel::run::failure::{Class, Failure};
use kernel::run::node;
use serde_json::json;
use store::definition::NewVersion;
use store::process::ProcessRegistration;
use store::queue::claim::{Begun, Claims, LivenessRule};
use store::queue::enqueue::{EnqueueOutcome, Start};
use store::run::{End, EndResult, Ending, NodeFact, Record};
use store::testing::Database;
use store::workspace::{NewWorkspace, WorkspaceChange};
use store::{Store, new_id};
use tokio::sync::Barrier;
use tokio_postgres::Client;
use tokio_postgres::types::{FromSqlOwned, ToSql};

pub(crate) const ENGINE: &str = "embedded";
/// How long a process may be silent in these tests.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(10);
/// How long a claim may last, even if its claimer lives.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(300);
pub(crate) const STEADY: LivenessRule = LivenessRule { dead_after: DEAD_AFTER, steady: true };
pub(crate) const UNSTEADY: LivenessRule = LivenessRule { dead_after: DEAD_AFTER, steady: false };

/// A database, a process registered in it, and a connection that bypasses the store.
pub(crate) struct World {
    pub(crate) database: Database,
    pub(crate) store: Store,
    pub(crate) me: ProcessId,
    pub(crate) client: Client,
}

/// What a definition is published with.
#[derive(Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) concurrency: Option<i32>,
    pub(crate) key_concurrency: Option<i32>,
    pub(crate) timeout_ms: Option<i64>,
}

impl World {
    pub(crate) async fn new() -> World {
        World::of(Database::new().await).await
    }

    /// In a migrated database.
    pub(crate) async fn of(database: Database) -> World {
        let store = Store::new(&database.target, 24).expect("a pool");
        let client = database.client().await;
        let me = ProcessId(new_id());
        let world = World { database, store, me, client };
        world.register(me).await;
        world
    }

    /// Registers another living process.
    pub(crate) async fn process(&self) -> ProcessId {
        let id = ProcessId(new_id());
        self.register(id).await;
        id
    }

    async fn register(&self, id: ProcessId) {
        let roles = vec!["dispatcher".to_owned(), "worker".to_owned()];
        let registration = ProcessRegistration { id, host: "here".to_owned(), pid: 1, roles, version: "0".to_owned() };
        store::process::register(&self.client, &registration).await.expect("a new process");
    }

    /// Makes a process silent for longer than it may be.
    pub(crate) async fn silence(&self, process: ProcessId) {
        self.run_sql("UPDATE process SET heartbeat_at = heartbeat_at - interval '1 hour' WHERE id = $1", &[&process.0])
            .await;
    }

    /// A workspace of a tier, and a definition in it without limits.
    pub(crate) async fn tenant(&self, tier: &str) -> (WorkspaceId, DefinitionId) {
        let workspace = self.workspace(tier).await;
        (workspace, self.definition(workspace, Limits::default()).await)
    }

    pub(crate) async fn workspace(&self, tier: &str) -> WorkspaceId {
        self.workspace_weighing(tier, 1, None).await
    }

    /// A workspace with a weight, in this shard if one is given.
    pub(crate) async fn workspace_weighing(&self, tier: &str, weight: i16, shard: Option<u8>) -> WorkspaceId {
        let mut bytes = *new_id().as_bytes();
        bytes[15] = shard.unwrap_or(bytes[15]);
        let id = WorkspaceId(uuid::Uuid::from_bytes(bytes));
        let new = NewWorkspace {
            id,
            name: id.to_string(),
            tier: tier.to_owned(),
            limit_override: None,
            weight,
            max_backlog: None,
        };
        self.store.create_workspace(&new, "test").await.expect("a new workspace");
        id
    }

    /// Sets a workspace's own limit.
    pub(crate) async fn limit(&self, workspace: WorkspaceId, limit: i32) {
        let change = WorkspaceChange { limit_override: Some(Some(limit)), ..WorkspaceChange::default() };
        self.store.change_workspace(workspace, &change, "test").await.expect("a changed workspace");
    }

    /// A published definition.
    pub(crate) async fn definition(&self, workspace: WorkspaceId, limits: Limits) -> DefinitionId {
        let version = new_version(limits);
        let name = new_id().to_string();
        let (id, stored) =
            self.store.create_definition(workspace, &name, &version, "test").await.expect("a new definition");
        self.store.publish(workspace, id, stored.id, &version, "test").await.expect("a published version");
        id
    }

    /// Accepts starts, all of them new.
    pub(crate) async fn accept(&self, starts: &[Start]) -> Vec<ExecutionId> {
        let answers = self.store.enqueue(starts, "test").await.expect("an enqueue");
        let new = |answer: &EnqueueOutcome| match answer {
            EnqueueOutcome::New { execution, .. } => *execution,
            other => panic!("not new: {other:?}"),
        };
        answers.iter().map(new).collect()
    }

    /// Accepts this many starts of one definition.
    pub(crate) async fn accept_many(
        &self,
        workspace: WorkspaceId,
        definition: DefinitionId,
        count: usize,
    ) -> Vec<ExecutionId> {
        let starts: Vec<Start> = (0..count).map(|_| start(workspace, definition)).collect();
        self.accept(&starts).await
    }

    /// Claims for a workspace, without beginning anything.
    pub(crate) async fn claim(&self, workspace: WorkspaceId, want: i32) -> Claims {
        self.claim_as(self.me, ClaimId(new_id()), None, workspace, want).await
    }

    pub(crate) async fn claim_as(
        &self,
        process: ProcessId,
        claim: ClaimId,
        engine: Option<&str>,
        workspace: WorkspaceId,
        want: i32,
    ) -> Claims {
        let asks = [Quota { workspace, limit: want }];
        self.store.claim(&asks, claim, process, engine).await.expect("a claim")
    }

    /// Claims one item under a known claim id.
    pub(crate) async fn claim_one(&self, process: ProcessId, workspace: WorkspaceId) -> (QueueItemId, ClaimId) {
        let claim = ClaimId(new_id());
        let claims = self.claim_as(process, claim, None, workspace, 1).await;
        (claims.items.first().expect("an item to claim").item, claim)
    }

    /// Claims and begins for a workspace, in one call.
    pub(crate) async fn run(&self, workspace: WorkspaceId, want: i32) -> Vec<Begun> {
        self.run_as(self.me, workspace, want).await
    }

    pub(crate) async fn run_as(&self, process: ProcessId, workspace: WorkspaceId, want: i32) -> Vec<Begun> {
        let claims = self.claim_as(process, ClaimId(new_id()), Some(ENGINE), workspace, want).await;
        claims.items.into_iter().map(|item| item.begun.expect("begun with its claim")).collect()
    }

    /// Ends one execution, whatever its state.
    pub(crate) async fn finish(&self, execution: ExecutionId, outcome: execution::Status) -> Vec<EndResult> {
        let ending = Ending { execution, claim: None, end: end(outcome) };
        self.store.complete(&[ending], None, "test").await.expect("an ending")
    }

    /// The state of an execution and its queue item, such as `RUNNING, DISPATCHED` or `CANCELED, no item`.
    pub(crate) async fn state(&self, execution: ExecutionId) -> String {
        self.get(
            "SELECT e.status || ', ' || coalesce(q.status, 'no item') FROM workflow_execution e
               LEFT JOIN execution_queue q ON q.id = e.id WHERE e.id = $1",
            &[&execution.0],
        )
        .await
    }

    /// How many items of a workspace are at which stage, such as `ready 2, slot 1`.
    pub(crate) async fn stages(&self, workspace: WorkspaceId) -> String {
        self.get(
            "SELECT coalesce(string_agg(name || ' ' || n, ', ' ORDER BY stage), 'nothing') FROM (
                SELECT q.stage, s.name, count(*) AS n FROM execution_queue q
                  JOIN (VALUES (0, 'ready'), (1, 'delayed'), (2, 'key'), (3, 'definition'), (5, 'slot'), (9, 'failed'))
                       AS s(stage, name) ON s.stage = q.stage
                 WHERE q.workspace_id = $1 GROUP BY q.stage, s.name) x",
            &[&workspace.0],
        )
        .await
    }

    /// How many rows a query finds.
    pub(crate) async fn count(&self, from_where: &str) -> i64 {
        self.get(&format!("SELECT count(*) FROM {from_where}"), &[]).await
    }

    /// One value, read with plain SQL.
    pub(crate) async fn get<T: FromSqlOwned>(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> T {
        self.client.query_one(sql, params).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
    }

    /// A change of at least one row with plain SQL.
    pub(crate) async fn run_sql(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) {
        let changed = self.client.execute(sql, params).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert!(changed > 0, "{sql} changed nothing");
    }

    /// From now on a claim that exceeds a limit of workspace, definition or key fails at its commit.
    pub(crate) async fn judge(&self) {
        self.client.batch_execute(JUDGE).await.expect("a judge");
    }

    /// From now on each claim that takes an item moves a mark, or none does.
    pub(crate) async fn move_marks(&self, always: bool) {
        let claims = if always { 1 } else { i32::MAX };
        self.constant("claims_per_mark", claims).await;
    }

    /// From now on marks move an hour ahead of the clock, as if whatever arrives next took that long to commit.
    pub(crate) async fn put_marks_ahead(&self) {
        self.constant("mark_lag_ms", -3_600_000).await;
    }

    /// From now on marks do not lag behind the clock.
    pub(crate) async fn keep_marks_close(&self) {
        self.constant("mark_lag_ms", 0).await;
    }

    /// From now on a mark lists at most this many numbers.
    pub(crate) async fn list_numbers(&self, most: i32) {
        self.constant("known_per_mark", most).await;
    }

    async fn constant(&self, name: &str, value: i32) {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION forebay_r1.{name}() RETURNS int
             LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT {value}'"
        );
        self.client.batch_execute(&sql).await.expect("a constant");
    }

    /// Waits until a session waits for a lock that another holds.
    pub(crate) async fn somebody_is_blocked(&self) {
        eventually("a session waits for a lock", async || {
            self.count("pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").await > 0
        })
        .await;
    }
}

const JUDGE: &str = "
CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE lim int; dlim int; klim int;
BEGIN
    SELECT coalesce(w.limit_override, t.max_running) INTO lim FROM workspace w JOIN tier t ON t.name = w.tier WHERE w.id = NEW.workspace_id;
    SELECT concurrency, key_concurrency INTO dlim, klim FROM workflow_definition WHERE id = NEW.workflow_definition_id;
    IF (SELECT count(*) FROM execution_queue WHERE stage = 5 AND workspace_id = NEW.workspace_id) > lim THEN
        RAISE EXCEPTION 'over the limit of the workspace';
    END IF;
    IF (SELECT count(*) FROM execution_queue WHERE stage = 5 AND workflow_definition_id = NEW.workflow_definition_id) > dlim THEN
        RAISE EXCEPTION 'over the limit of the definition';
    END IF;
    IF (SELECT count(*) FROM execution_queue WHERE stage = 5 AND workflow_definition_id = NEW.workflow_definition_id
           AND concurrency_key = NEW.concurrency_key) > klim THEN
        RAISE EXCEPTION 'over the limit of the key';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER judge AFTER UPDATE OF stage ON execution_queue DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.stage = 5 AND OLD.stage <> 5) EXECUTE FUNCTION judge();
";

pub(crate) fn new_version(limits: Limits) -> NewVersion {
    NewVersion {
        graph: json!({ "nodes": {}, "edges": [] }),
        content_hash: new_id().to_string(),
        source: None,
        timeout_ms: limits.timeout_ms,
        concurrency: limits.concurrency,
        key_concurrency: limits.key_concurrency,
        max_attempts: None,
    }
}

pub(crate) fn start(workspace: WorkspaceId, definition: DefinitionId) -> Start {
    Start {
        execution: ExecutionId(new_id()),
        workspace,
        definition,
        input: None,
        priority: Priority::USUAL,
        run_at: None,
        concurrency_key: None,
        idempotency: None,
        trigger: json!({ "type": "test" }),
        trace: None,
        version: None,
        rerun_of: None,
    }
}

pub(crate) fn keyed(workspace: WorkspaceId, definition: DefinitionId, key: &str) -> Start {
    Start { concurrency_key: Some(key.to_owned()), ..start(workspace, definition) }
}

pub(crate) fn end(outcome: execution::Status) -> End {
    let failed = matches!(outcome, execution::Status::Failed | execution::Status::TimedOut);
    End { outcome, output: None, error: failed.then(|| failure("it broke")) }
}

pub(crate) fn failure(message: &str) -> Failure {
    Failure::new(Class::ExecutionError, message)
}

pub(crate) fn fact(node: &str, status: node::Status) -> NodeFact {
    NodeFact {
        node: NodeKey::new(node).expect("a node key"),
        iteration: 0,
        status,
        attempt: 1,
        next_in: None,
        label: None,
        input: None,
        output: None,
        error: None,
        once: false,
    }
}

pub(crate) fn record(run: &Begun, facts: Vec<NodeFact>) -> Record {
    Record { execution: run.execution, holder: run.execution, epoch: run.epoch, facts, end: None, park: None }
}

/// Looks until a condition holds, for a minute at most: the machine is shared.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(60), "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs this many tasks at once, each on its own connection that is already open.
pub(crate) async fn race<T, F>(store: &Store, racers: usize, run: impl Fn(usize, Store) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let line = Arc::new(Barrier::new(racers));
    let tasks: Vec<_> = (0..racers)
        .map(|racer| {
            let (line, store, run) = (Arc::clone(&line), store.clone(), run(racer, store.clone()));
            tokio::spawn(async move {
                store.ping().await.expect("a connection");
                line.wait().await;
                run.await
            })
        })
        .collect();
    let mut result = Vec::new();
    for task in tasks {
        result.push(task.await.expect("a racer that finishes"));
    }
    result
}
