//! Tests what operators see: health, readiness, metrics, spans and log events. The first three need no key.

use kernel::signals::{self, Event, Kind, Metric, events, metrics, spans};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};
use store::access::key::Secret;

use crate::secrets::KEY;
use crate::support::collector::{Collector, Span};
use crate::support::http::{Api, send};
use crate::support::process::{Process, forebay};
use crate::support::server::{MORTAL, value};
use crate::support::tenant::text;
use crate::support::{Receiver, Server, Tenant, World, until};

#[tokio::test]
async fn health_readiness_and_metrics_answer_without_a_key() {
    let world = World::new().await;
    let anonymous = world.server.anonymous();
    let health = anonymous.get("/healthz").await;
    assert_eq!((health.status, health.text.as_str()), (200, "ok\n"));
    let ready = anonymous.get("/readyz").await.expect(200);
    let checks = json!({ "database": "ok", "engine": "ok", "heartbeat": "ok", "secrets": "ok" });
    assert_eq!((&ready["ready"], &ready["checks"]), (&json!(true), &checks));

    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let all = tenant.start_many(&held, 2).await;
    world.receiver.until_called("/hold/a", 1).await;
    let logs = &world.server.process.stderr;
    until("the full workspace is logged", async || logs.contain("Workspace at capacity").then_some(())).await;
    world.receiver.open();
    for id in &all {
        tenant.completed(id).await;
    }
    let gone = tenant.start(&held).await;
    tenant.completed(&gone).await;

    let reply = anonymous.get("/metrics").await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/plain; version=0.0.4"));
    for name in [
        "queue_processing_batch_size",
        "queue_processing_duration_seconds",
        "forebay_queue_processing_passes_total",
        "queue_items_dispatched_total",
        "queue_items_at_capacity_total",
        "forebay_queue_items_enqueued_total",
        "forebay_process_heartbeat_age_seconds",
        "forebay_http_request_duration_seconds",
        "forebay_node_attempt_duration_seconds",
        "forebay_engine_runs",
        "forebay_engine_runs_per_commit",
        "forebay_queue_starts_per_commit",
    ] {
        assert!(reply.text.contains(&format!("# TYPE {name} ")), "{name} is missing:\n{}", reply.text);
    }
    assert_eq!(value(&reply.text, "queue_items_dispatched_total"), 3.0);
    assert_eq!(value(&reply.text, "forebay_queue_items_enqueued_total"), 3.0);
    assert_eq!(value(&reply.text, "queue_items_at_capacity_total"), 1.0, "once per transition");
    assert!(!reply.text.contains(&gone), "an id is no label");
}

/// A server that logs JSON and sends its spans to a collector, over a database of its own.
struct Watched {
    world: World,
    collector: Collector,
}

impl Watched {
    async fn new() -> Watched {
        let database = store::testing::Database::new().await;
        let (receiver, collector) = (Receiver::start().await, Collector::start().await);
        let settings =
            receiver.allowed(&["metrics.sample_interval_ms=100", "log.format=json", KEY, MORTAL[0], MORTAL[1]]);
        let key = Secret::generate().expect("randomness");
        let mut server = Server::spawn_in(&database.url, &key, &settings, &collector.environment());
        server.ready().await;
        Watched { world: World { database, receiver, server }, collector }
    }

    /// Lines of the log as objects.
    fn log(&self) -> Vec<Value> {
        let lines = self.world.server.process.stderr.all();
        lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The event is logged, at its level and with its fields.
    async fn expect_logged(&self, event: &Event) {
        let is = |line: &Value| {
            let fields = &line["fields"];
            event.matches(fields["message"].as_str().unwrap_or_default())
                && line["level"] == event.level.name()
                && event.fields.iter().all(|field| !fields[*field].is_null())
        };
        until(event.message, async || self.log().iter().any(is).then_some(())).await;
    }

    async fn metrics(&self) -> String {
        self.world.server.anonymous().get("/metrics").await.text
    }

    /// An item of a paused workspace of its own, for a test to tamper with.
    async fn waiting(&self) -> (Tenant, String) {
        let tenant = self.world.tenant("FREE").await;
        let definition = tenant.light().await;
        self.world.run_sql(&format!("UPDATE workspace SET paused = true WHERE id = '{}'", tenant.id)).await;
        let id = tenant.start(&definition).await;
        (tenant, id)
    }

    async fn resume(&self, tenant: &Tenant) {
        self.world.run_sql(&format!("UPDATE workspace SET paused = false WHERE id = '{}'", tenant.id)).await;
    }

    /// A workspace at its limit, slots handed on, failures, and a run that another took.
    async fn ordinary_life(&self) {
        let tenant = self.world.tenant("FREE").await;
        let held = tenant.apply("held", json!({ "call": self.world.receiver.node("/hold/a") })).await;
        // Changes are read while somebody follows them.
        let follows = tenant.api.request(Method::GET, "/api/v1/workflow/executions/events").send().await;
        let _follows = follows.expect("a stream");
        let all = tenant.start_many(&held, 3).await;
        self.world.receiver.until_called("/hold/a", 1).await;
        self.expect_logged(&events::AT_CAPACITY).await;
        let stands = [
            "forebay_queue_depth{stage=\"ready\"} 2\n",
            "forebay_queue_slots_in_use 1\n",
            "forebay_queue_slots_limit 1\n",
            "forebay_engine_runs 1\n",
        ];
        until("the gauges are up to date", async || {
            let text = self.metrics().await;
            let (_, oldest) = text.split_once("forebay_queue_oldest_ready_age_seconds{waiting_for=\"slot\"} ")?;
            let waits = oldest.lines().next()?.parse::<f64>().is_ok_and(|age| age > 0.0);
            (waits && stands.iter().all(|line| text.contains(line))).then_some(())
        })
        .await;
        let lost = self.world.tenant("FREE").await;
        let taken = lost.apply("held", json!({ "call": self.world.receiver.node("/hold/b") })).await;
        let taken = lost.start(&taken).await;
        self.world.receiver.until_called("/hold/b", 1).await;
        let stranger = format!("owner = '{}' WHERE id = '{taken}'", store::new_id());
        let steal = "UPDATE workflow_execution SET owner_epoch = owner_epoch + 1,";
        self.world.run_sql(&format!("{steal} {stranger}; UPDATE execution_queue SET {stranger}")).await;
        self.world.receiver.open();
        for id in &all {
            tenant.completed(id).await;
        }
        // The stranger that took it is nobody, so it comes back as an orphan.
        lost.completed(&taken).await;
        let fail = json!({ "stop": { "kind": "FAIL", "with": { "message": "no" } } });
        let failing = tenant.start(&tenant.apply("failing", fail).await).await;
        assert_eq!(tenant.ended(&failing).await["status"], "FAILED");
    }

    /// A delivered webhook, and an unknown trigger address.
    async fn webhooks(&self) {
        let tenant = self.world.tenant("FREE").await;
        let url = self.world.receiver.url("/call/webhook");
        tenant.api.post("webhooks", json!({ "url": url })).await.expect(201);
        tenant.completed(&tenant.start(&tenant.light().await).await).await;
        self.world.receiver.until_called("/call/webhook", 1).await;
        assert_eq!(self.world.server.anonymous().post("/triggers/none", json!({})).await.status, 404);
    }

    /// A wait that is answered, and a task whose worker never sends a heartbeat again.
    async fn waits(&self) {
        let tenant = self.world.tenant("FREE").await;
        let definition = tenant.apply("asking", json!({ "approve": { "kind": "WAIT_FOR_EVENT" } })).await;
        tenant.api.post(&format!("workflow/definitions/{definition}/pause"), json!({})).await.expect(200);
        let asking = tenant.start(&definition).await;
        tenant.api.post(&format!("workflow/executions/{asking}/waits/approve/answer"), json!({})).await.expect(200);
        let task = format!(
            "INSERT INTO workflow_execution_wait (execution_id, node, id, workspace_id, holder, kind, attempt, status, queue, lease_s, opened_at)
             VALUES ('{asking}', 'work', gen_random_uuid(), '{}', '{asking}', 'TASK', 1, 'OPEN', 'mail', 1, now())",
            tenant.id
        );
        self.world.run_sql(&task).await;
        let claim = json!({ "queues": ["mail"], "workerId": "w", "leaseSeconds": 1 });
        tenant.api.post("tasks/claim", claim).await.expect(200);
        until("its lease is lost", async || {
            (self.world.count("workflow_execution_wait WHERE lost = 1").await == 1).then_some(())
        })
        .await;
    }

    /// A tick that comes.
    async fn schedules(&self) {
        let tenant = self.world.tenant("FREE").await;
        // Long enough for the request to arrive before, however busy the machine is.
        let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(5);
        let once = json!({ "workflowDefinitionId": tenant.light().await, "runAt": soon });
        tenant.api.post("schedules", once).await.expect(201);
    }

    /// Things that go missing under an item.
    async fn missing_parts(&self) {
        let (tenant, _) = self.waiting().await;
        self.world
            .run_sql(&format!("UPDATE workflow_definition SET deleted_at = now() WHERE workspace_id = '{}'", tenant.id))
            .await;
        self.resume(&tenant).await;
        let (tenant, _) = self.waiting().await;
        self.world.run_sql(&format!("UPDATE workspace SET deleted_at = now() WHERE id = '{}'", tenant.id)).await;
        let (tenant, id) = self.waiting().await;
        self.world.run_sql(&format!("DELETE FROM workflow_execution WHERE id = '{id}'")).await;
        let (stuck, broken) = self.waiting().await;
        let refuse = format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
             CREATE TRIGGER refuse BEFORE UPDATE ON execution_queue FOR EACH ROW
               WHEN (NEW.id = '{broken}' AND NEW.attempt_count > OLD.attempt_count) EXECUTE FUNCTION refuse();
             DELETE FROM workflow_execution WHERE id = '{broken}'"
        );
        self.world.run_sql(&refuse).await;
        self.resume(&tenant).await;
        self.resume(&stuck).await;
        let missing = [events::DEFINITION_GONE, events::WORKSPACE_GONE, events::EXECUTION_GONE, events::START_FAILED];
        for event in missing.iter().chain([&events::ITEM_ERROR]) {
            self.expect_logged(event).await;
        }
    }

    /// A newer release has raised the protocol, until somebody takes it back.
    async fn other_protocol(&self) {
        let claims = async || {
            let ready = self.world.server.anonymous().get("/readyz").await;
            assert_eq!(ready.status, 200, "it answers all the same");
            ready.body["checks"]["claims"].as_str().map(str::to_owned)
        };
        self.world.run_sql("UPDATE protocol SET number = number + 1").await;
        self.expect_logged(&events::CLAIMING_STOPPED).await;
        let why = async || claims().await.filter(|observed| observed.contains("protocol 1"));
        let observed = until("it says why", why).await;
        assert!(observed.contains("upgrade this process to the newer release"), "{observed}");
        self.world.run_sql("UPDATE protocol SET number = number - 1").await;
        until("it claims again", async || claims().await.is_none().then_some(())).await;
    }

    /// Processes that die with work in their hands, and this one stopped for too long.
    async fn deaths(&self) {
        let (tenant, claimed) = self.waiting().await;
        let claim = "status = 'CLAIMED', stage = 5, claim_number = nextval('forebay.claim_number'),
            claim_id = gen_random_uuid(), claimed_by = gen_random_uuid(), claimed_at = now() - interval '1 hour'";
        self.world.run_sql(&format!("UPDATE execution_queue SET {claim} WHERE id = '{claimed}'")).await;
        tenant.completed(&claimed).await;
        self.expect_logged(&events::RECOVERED).await;
        let (tenant, orphan) = self.waiting().await;
        let process = format!(
            "INSERT INTO process (id, host, pid, roles, version, release, heartbeat_at) VALUES
            ('{orphan}', 'gone', 1, '{{worker}}', '0', 1, now() - interval '1 hour')"
        );
        let run = format!(
            "UPDATE workflow_execution SET status = 'RUNNING', engine = 'embedded', owner = '{orphan}',
            started_at = now() WHERE id = '{orphan}'"
        );
        let item = format!(
            "UPDATE execution_queue SET status = 'DISPATCHED', stage = 5, owner = '{orphan}', claimed_by = '{orphan}',
            claim_number = nextval('forebay.claim_number'), claim_id = gen_random_uuid(), claimed_at = now(),
            dispatched_at = now() WHERE id = '{orphan}'"
        );
        self.world.run_sql(&format!("BEGIN; {process}; {run}; {item}; COMMIT")).await;
        tenant.completed(&orphan).await;
        self.expect_logged(&events::PROCESS_DEAD).await;
        self.expect_logged(&events::RUN_RESUMED).await;
        self.world.server.process.signal(Signal::SIGSTOP);
        let lapsed = "process WHERE ended_at IS NULL AND heartbeat_at > now() - interval '1600 milliseconds'";
        until("its lease is over", async || (self.world.count(lapsed).await == 0).then_some(())).await;
        self.world.server.process.signal(Signal::SIGCONT);
        self.expect_logged(&events::LEASE_EXPIRED).await;
    }
}

#[tokio::test]
async fn a_running_service_emits_every_signal_of_the_table() {
    let watched = Watched::new().await;
    watched.ordinary_life().await;
    watched.webhooks().await;
    watched.waits().await;
    watched.world.server.anonymous().get("workspaces").await.problem(401);
    watched.schedules().await;
    watched.other_protocol().await;
    watched.missing_parts().await;
    watched.deaths().await;
    for event in events::ALL {
        watched.expect_logged(event).await;
    }
    for metric in metrics::ALL {
        until(metric.name, async || published(metric, &watched.metrics().await).then_some(())).await;
    }
    // That one has a test of its own, on Temporal.
    for span in spans::ALL.iter().filter(|span| **span != spans::START_WORKFLOW) {
        let name = span.name.replace("{engine}", "embedded").replace("{operation}", "query");
        until(&name, async || recorded(span, &name, &watched.collector.spans()).then_some(())).await;
    }
    let text = watched.metrics().await;
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let unlisted: Vec<&str> = names.filter(|name| metrics::ALL.iter().all(|metric| metric.name != *name)).collect();
    assert!(unlisted.is_empty(), "not in the table: {unlisted:?}");
}

/// The metric is there with its type, its meaning, its labels, and not only at zero.
fn published(metric: &Metric, text: &str) -> bool {
    let Metric { name, kind, labels, help, .. } = metric;
    let line = match kind {
        Kind::Histogram(_) => format!("{name}_count"),
        Kind::Counter | Kind::Gauge => (*name).to_owned(),
    };
    let samples: Vec<&str> =
        text.lines().filter(|it| it.strip_prefix(&line).is_some_and(|rest| rest.starts_with([' ', '{']))).collect();
    let labelled = |sample: &&str| labels.iter().all(|label| sample.contains(&format!("{label}=\"")));
    let above_zero = |sample: &&str| sample.rsplit(' ').next().is_some_and(|value| value != "0");
    // Nobody shares the lock table here, and a gauge may have fallen again.
    // Their causes have tests of their own: `exclusive`, `reconciler`, `temporal`, the store's `retention`, `realtime`,
    // `strangers`.
    let elsewhere = [
        metrics::LOCK_FAILURES,
        metrics::RUNS_RECONCILED,
        metrics::RUNS_STUCK,
        metrics::EXECUTIONS_DELETED,
        metrics::SUBSCRIBERS_DROPPED,
        metrics::HTTP_CLOSED,
    ];
    let may_be_zero = elsewhere.contains(metric) || metric.kind == Kind::Gauge;
    text.contains(&format!("# TYPE {name} {}\n", kind.name()))
        && text.contains(&format!("# HELP {name} {}\n", help.replace('\\', "\\\\")))
        && !samples.is_empty()
        && samples.iter().all(labelled)
        && (may_be_zero || samples.iter().any(above_zero))
}

/// The span was sent, with its fields, below the one it lies in.
fn recorded(span: &signals::Span, name: &str, all: &[Span]) -> bool {
    all.iter().filter(|found| found.name == name).any(|found| {
        let within = all.iter().find(|outer| outer.id == found.parent);
        let below = span.parent.is_none_or(|outer| within.is_some_and(|found| found.name == outer));
        below && span.fields.iter().all(|field| found.fields.contains_key(*field))
    })
}

pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

pub(crate) async fn start_traced(tenant: &Tenant, definition: &str) -> String {
    let request = tenant.api.request(Method::POST, "workflow/executions/start");
    let request = request.header("traceparent", format!("00-{TRACE}-{CALLER}-01"));
    let started = send(request.json(&json!({ "workflowDefinitionId": definition }))).await.expect(202);
    text(&started["executionId"])
}

#[tokio::test]
async fn one_execution_is_one_trace_from_the_callers_span_to_what_its_nodes_send() {
    let watched = Watched::new().await;
    let tenant = watched.world.tenant("FREE").await;
    let definition = tenant.apply("call", json!({ "call": watched.world.receiver.node("/call/a") })).await;
    let id = start_traced(&tenant, &definition).await;
    tenant.completed(&id).await;
    let find = async |name: &str| {
        let is = |span: &&Span| span.name == name && span.trace == TRACE;
        until(name, async || watched.collector.spans().iter().find(is).cloned()).await
    };
    let request = find("http:request").await;
    let run = find("flow:workflow_execution").await;
    let node = find("step:run_node").await;
    assert_eq!((request.parent.as_str(), &run.parent, &node.parent), (CALLER, &request.id, &run.id));
    assert_eq!(run.fields["execution_id"], json!({ "stringValue": id }));
    let sent = watched.world.receiver.traces("/call/a");
    assert_eq!(sent, [format!("00-{TRACE}-{}-01", node.id)], "a node's request is the child of its span");
    let linked = |span: &Span| span.name == "step:process_item" && span.links == [TRACE];
    until("the dispatch is linked", async || watched.collector.spans().iter().any(linked).then_some(())).await;
}

#[tokio::test]
async fn without_a_collector_context_is_passed_on_and_nobody_is_without_one() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let definition = tenant.apply("call", json!({ "call": world.receiver.node("/call/a") })).await;
    tenant.completed(&start_traced(&tenant, &definition).await).await;
    let own = tenant.start(&definition).await;
    tenant.completed(&own).await;
    let sent = world.receiver.traces("/call/a");
    assert_eq!(sent[0], format!("00-{TRACE}-{CALLER}-01"));
    assert!(sent[1].starts_with(&format!("00-{}-", own.replace('-', ""))), "its trace is named after it: {sent:?}");
}

#[tokio::test]
async fn a_process_without_the_api_answers_about_itself_and_nothing_else() {
    let database = store::testing::Database::new().await;
    let mut command = forebay();
    command.args(["serve", "--database-url", &database.url, "--roles", "dispatcher,worker"]);
    command.args(["--set", "http.admin_listen=127.0.0.1:0"]);
    let mut process = Process::spawn("worker", command);
    let base = process.says("Forebay listens on ").await;
    let anonymous = Api::new(&base, None);
    assert_eq!(anonymous.get("/healthz").await.status, 200);
    anonymous.get("/readyz").await.expect(200);
    assert!(anonymous.get("/metrics").await.text.contains("forebay_process_heartbeat_age_seconds"));
    assert_eq!(anonymous.get("workspaces").await.problem(404), "not_found");
}
