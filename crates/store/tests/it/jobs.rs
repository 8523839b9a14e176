//! Jobs follow the kernel's table of steps, whichever program writes. Tests the claims that a writer must show, retries
//! and recovery, and that a job's row equals the aggregate of its facts.

use std::sync::Arc;
use std::time::Duration;

use kernel::execution;
use kernel::ids::{ExecutionId, VersionId, WorkspaceId};
use kernel::job::{Status, Step};
use serde_json::{Value, json};
use store::event::NewEvent;
use store::job::projector::{JobAction, JobStart, JobStartOutcome};
use store::job::{Difference, JobClaim, JobEnd, JobRequest};
use store::retention::Section;
use store::run::Ending;
use store::{Error, new_id};
use uuid::Uuid;

use crate::events::{event, rule};
use crate::support::{World, end, race};

const CLAIM: &str = "UPDATE workflow_queue_projection SET status = 'processing', worker_id = 'w-1', claimed_at = now(), updated_at = now()
                     WHERE id = $1 AND status = 'pending' RETURNING id";
const COMPLETE: &str = "UPDATE workflow_queue_projection SET status = 'completed', completed_at = now(), result = '{\"a\": 1}', updated_at = now() WHERE id = $1";
const FAIL: &str = "UPDATE workflow_queue_projection SET status = 'failed', failed_at = now(), error_message = 'no', error_stack = 'at', retry_count = retry_count + 1, updated_at = now() WHERE id = $1";

/// Events of a type that only external workers serve; their jobs.
async fn jobs(world: &World, count: usize) -> Vec<Uuid> {
    let bound = world.store.bindings(None, None, 10).await.expect("a list");
    if !bound.iter().any(|one| one.rule.event_type == "order.*") {
        world.store.bind(None, None, &rule("order.*"), "test").await.expect("a binding");
    }
    let events: Vec<NewEvent> = (0..count).map(|_| event("order.placed")).collect();
    world.store.append(&events).await.expect("an append");
    let mut ids = Vec::new();
    for event in events {
        ids.push(world.get("SELECT id FROM workflow_queue_projection WHERE event_id = $1", &[&event.id]).await);
    }
    ids
}

async fn sql(world: &World, sql: &str, job: Uuid) -> Result<u64, String> {
    let answered = |error: tokio_postgres::Error| {
        error.as_db_error().map_or(error.to_string(), |error| error.message().to_owned())
    };
    world.client.execute(sql, &[&job]).await.map_err(answered)
}

async fn status(world: &World, job: Uuid) -> String {
    world.get("SELECT status || ' ' || retry_count FROM workflow_queue_projection WHERE id = $1", &[&job]).await
}

async fn facts(world: &World, job: Uuid) -> String {
    world
        .get(
            "SELECT string_agg(replace(event_type, 'workflow.queue.', ''), ' ' ORDER BY stream_version) FROM domain_events
              WHERE stream_type = 'workflow_queue' AND stream_id = $1",
            &[&job],
        )
        .await
}

pub(crate) async fn is_rebuilt_alike(world: &World) -> i64 {
    let found = world.store.check_jobs().await.expect("a check");
    assert!(found.is_none(), "{found:?}");
    found.jobs
}

async fn one_claim(world: &World, lease_s: i32) -> JobClaim {
    let wanted =
        JobRequest { workspace: None, event_types: None, id: None, worker: "api-1", lease_s: Some(lease_s), limit: 1 };
    let held = world.store.claim_jobs(&wanted).await.expect("a claim").pop().expect("a job");
    JobClaim { job: held.job.id, workspace: None, claim: held.claim }
}

#[tokio::test]
async fn a_job_moves_exactly_as_the_kernel_says() {
    let world = World::new().await;
    let way = |to: Status| match to {
        Status::Pending => vec![],
        Status::Processing => vec![CLAIM],
        Status::Completed => vec![CLAIM, COMPLETE],
        Status::Failed => vec![CLAIM, FAIL],
    };
    for from in Status::ALL {
        for to in Status::ALL.into_iter().filter(|to| *to != from) {
            let job = jobs(&world, 1).await[0];
            for statement in way(from) {
                assert_eq!(sql(&world, statement, job).await, Ok(1));
            }
            let change = format!(
                "UPDATE workflow_queue_projection SET status = '{}', worker_id = 'w-2' WHERE id = $1",
                to.name()
            );
            let legal = Step::ALL.into_iter().any(|step| from.after(step) == Some(to));
            let done = sql(&world, &change, job).await;
            assert_eq!(done.is_ok(), legal, "{from:?} to {to:?}: {done:?}");
            assert!(status(&world, job).await.starts_with(if legal { to } else { from }.name()));
        }
    }
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn a_refused_change_of_a_job_says_why() {
    let world = World::new().await;
    let job = jobs(&world, 1).await[0];
    let answered = async |statement: &str| sql(&world, statement, job).await.expect_err(statement);
    assert_eq!(answered(COMPLETE).await, "a pending job cannot be completed: claim it first");
    assert_eq!(answered(FAIL).await, "a pending job cannot be failed: claim it first");
    assert!(
        answered("UPDATE workflow_queue_projection SET status = 'stuck' WHERE id = $1")
            .await
            .contains("check constraint")
    );
    let unnamed = "UPDATE workflow_queue_projection SET status = 'processing' WHERE id = $1";
    assert_eq!(answered(unnamed).await, "a claim must name its worker: set worker_id");
    assert_eq!(sql(&world, CLAIM, job).await, Ok(1));
    assert_eq!(sql(&world, CLAIM, job).await, Ok(0), "a second claim finds nothing");
    let steal = "UPDATE workflow_queue_projection SET status = 'processing', worker_id = 'w-2' WHERE id = $1";
    assert_eq!(answered(steal).await, "a processing job cannot be claimed: w-1 holds it");
    let event = "UPDATE workflow_queue_projection SET event_data = '{}' WHERE id = $1";
    assert_eq!(answered(event).await, "the event of a job cannot be changed");
    assert_eq!(sql(&world, COMPLETE, job).await, Ok(1));
    assert_eq!(answered(FAIL).await, "a completed job is final: it cannot become failed");
    assert_eq!(
        answered(COMPLETE.replace("{\"a\": 1}", "{}").as_str()).await,
        "a completed job cannot be changed: only updated_at may change, as a heartbeat"
    );
    for gone in [
        "DELETE FROM workflow_queue_projection WHERE id = $1",
        "DELETE FROM workflow_queue_projection WHERE $1::uuid IS NOT NULL",
    ] {
        assert_eq!(answered(gone).await, "jobs are deleted by retention only: set retention.job_days");
    }
    world.client.batch_execute("TRUNCATE workflow_queue_projection").await.expect_err("nor so");
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn a_job_is_tried_three_times_with_backoff_and_then_stays_failed() {
    let world = World::new().await;
    let job = jobs(&world, 1).await[0];
    let first = Duration::from_secs(60);
    for failures in 1..=3 {
        assert_eq!(sql(&world, CLAIM, job).await, Ok(1));
        // Whatever a worker sets the count to, it counts one failure.
        let fail = if failures == 2 {
            FAIL.replace("retry_count = retry_count + 1", "retry_count = 0")
        } else {
            FAIL.to_owned()
        };
        assert_eq!(sql(&world, &fail, job).await, Ok(1));
        assert_eq!(status(&world, job).await, format!("failed {failures}"));
        assert_eq!(world.store.retry_due_jobs(first, 10).await.expect("a pass"), 0, "it waits");
        let ago = |seconds: i32| {
            format!(
                "UPDATE workflow_queue_job SET retry_from = retry_from - interval '{seconds} s' WHERE id = $1 AND retry_from IS NOT NULL"
            )
        };
        if failures == 2 {
            assert_eq!(sql(&world, &ago(61), job).await, Ok(1));
            assert_eq!(world.store.retry_due_jobs(first, 10).await.expect("a pass"), 0, "twice as long");
        }
        let waited = sql(&world, &ago(61), job).await;
        assert_eq!(world.store.retry_due_jobs(first, 10).await.expect("a pass"), i32::from(failures < 3));
        assert_eq!(waited, Ok(u64::from(failures < 3)));
    }
    let again = "UPDATE workflow_queue_projection SET status = 'pending' WHERE id = $1";
    assert_eq!(sql(&world, again, job).await, Err("a job that failed 3 times cannot be retried".to_owned()));
    assert!(matches!(world.store.retry_job(job, None, "test").await, Err(Error::Conflict(_))));
    assert_eq!(facts(&world, job).await, "pending claimed failed retried claimed failed retried claimed failed");
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn a_silent_worker_loses_its_job_and_one_with_heartbeats_does_not() {
    let world = World::new().await;
    let lost = jobs(&world, 2).await;
    let (quiet, alive) = (lost[0], lost[1]);
    for job in [quiet, alive] {
        assert_eq!(sql(&world, CLAIM, job).await, Ok(1));
        let past = "UPDATE workflow_queue_projection SET claimed_at = now() - interval '1 hour', updated_at = now() - interval '20 minutes' WHERE id = $1";
        assert_eq!(sql(&world, past, job).await, Ok(1));
    }
    // A client's clock that is ahead does not extend a lease.
    let ahead =
        "UPDATE workflow_queue_projection SET claimed_at = '2999-01-01', updated_at = '2999-01-01' WHERE id = $1";
    assert_eq!(sql(&world, ahead, alive).await, Ok(1));
    let until = "(SELECT 1 FROM workflow_queue_job WHERE lease_until > now() + interval '900 s') x";
    assert_eq!(world.count(until).await, 0);
    let touch = "UPDATE workflow_queue_projection SET updated_at = now() WHERE id = $1";
    assert_eq!(sql(&world, touch, alive).await, Ok(1));
    assert_eq!(world.store.recover_jobs(10).await.expect("a pass"), 1);
    assert_eq!(
        (status(&world, quiet).await, status(&world, alive).await),
        ("pending 0".to_owned(), "processing 0".to_owned())
    );
    assert_eq!(facts(&world, quiet).await, "pending claimed touched recovered");

    let claim = one_claim(&world, 60).await;
    assert_eq!(claim.job, quiet);
    assert_eq!(world.store.recover_jobs(10).await.expect("a pass"), 0);
    world.run_sql("UPDATE workflow_queue_job SET lease_until = now() - interval '1 s' WHERE id = $1", &[&quiet]).await;
    world.store.heartbeat_job(claim, None, Some("wf"), Some("run")).await.expect("it still holds it");
    assert_eq!(world.store.recover_jobs(10).await.expect("a pass"), 0, "its heartbeat was in time");
    world.run_sql("UPDATE workflow_queue_job SET lease_until = now() - interval '1 s' WHERE id = $1", &[&quiet]).await;
    assert_eq!(world.store.recover_jobs(10).await.expect("a pass"), 1);
    assert!(matches!(world.store.heartbeat_job(claim, None, None, None).await, Err(Error::Conflict(_))), "too late");
    assert!(
        matches!(world.store.end_job(claim, &JobEnd::Completed(&json!({}))).await, Err(Error::Conflict(_))),
        "too late"
    );
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn a_heartbeat_extends_by_the_lease_of_its_claim_unless_it_names_another() {
    let world = World::new().await;
    jobs(&world, 1).await;
    let claim = one_claim(&world, 10).await;
    for (said, expected) in [(None, 10), (Some(60), 60), (None, 10)] {
        let until = world.store.heartbeat_job(claim, said, None, None).await.expect("it holds it");
        let left = until.duration_since(jiff::Timestamp::now()).as_secs();
        assert!((expected - 5..=expected).contains(&left), "{said:?}: {left} s");
    }
}

#[tokio::test]
async fn jobs_are_claimed_by_exact_types_and_by_prefixes() {
    let world = World::new().await;
    let job = jobs(&world, 1).await[0];
    let claim = async |types: &[&str]| {
        let types: Vec<String> = types.iter().map(|text| (*text).to_owned()).collect();
        let wanted = JobRequest {
            workspace: None,
            event_types: Some(&types),
            id: None,
            worker: "api-1",
            lease_s: None,
            limit: 1,
        };
        world.store.claim_jobs(&wanted).await.expect("a claim").into_iter().map(|held| held.job.id).collect::<Vec<_>>()
    };
    for other in ["order", "orde.*", "order.placed.*", "order_*", "invoice.*"] {
        assert_eq!(claim(&[other]).await, [] as [Uuid; 0], "{other}");
    }
    assert_eq!(claim(&["invoice.due", "order.*"]).await, [job]);
}

#[tokio::test]
async fn a_claimed_job_changes_only_under_its_claim() {
    let world = World::new().await;
    let job = jobs(&world, 1).await[0];
    // A plain-SQL worker that was declared silent, and comes back.
    assert_eq!(sql(&world, CLAIM, job).await, Ok(1));
    world.run_sql("UPDATE workflow_queue_job SET lease_until = now() - interval '1 s' WHERE id = $1", &[&job]).await;
    assert_eq!(world.store.recover_jobs(10).await.expect("a pass"), 1);
    let claim = one_claim(&world, 60).await;
    for late in [COMPLETE, FAIL, "UPDATE workflow_queue_projection SET status = 'pending' WHERE id = $1"] {
        let answered = sql(&world, late, job).await.expect_err("another worker holds it");
        assert_eq!(answered, format!("job {job} is claimed by api-1: only the holder of its claim can end it"));
    }
    let other = JobClaim { claim: new_id(), ..claim };
    assert!(matches!(world.store.end_job(other, &JobEnd::Completed(&json!({}))).await, Err(Error::Conflict(_))));
    let stranger = JobClaim { workspace: Some(WorkspaceId(new_id())), ..claim };
    assert!(matches!(world.store.end_job(stranger, &JobEnd::Completed(&json!({}))).await, Err(Error::NotFound)));
    let done = json!({ "ok": true });
    for _ in 0..2 {
        world.store.end_job(claim, &JobEnd::Completed(&done)).await.expect("ended twice, stored once");
    }
    assert!(matches!(
        world.store.end_job(claim, &JobEnd::Failed { message: "no", stack: None }).await,
        Err(Error::Conflict(_))
    ));
    assert_eq!(facts(&world, job).await, "pending claimed recovered claimed completed");
    let row = world.store.job(job, None).await.expect("a job");
    assert_eq!((row.result, row.worker_id.as_deref()), (Some(done), Some("api-1")));
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn a_worker_of_the_api_cannot_end_a_job_of_our_own_worker() {
    let world = World::new().await;
    our_jobs(&world, 1).await;
    let (job, execution) = started(&world).await;
    // The claim is also in the job's `workflow_run_id`, visible to whoever may read the job.
    let claim = JobClaim { job, workspace: None, claim: execution.0 };
    for end in [JobEnd::Completed(&json!({})), JobEnd::Failed { message: "no", stack: None }] {
        assert!(matches!(world.store.end_job(claim, &end).await, Err(Error::Conflict(_))));
    }
    assert!(matches!(world.store.heartbeat_job(claim, None, None, None).await, Err(Error::Conflict(_))));
    assert_eq!(status(&world, job).await, "processing 0");
}

#[tokio::test]
async fn concurrent_workers_of_every_kind_claim_each_job_once() {
    let world = World::new().await;
    let all = jobs(&world, 60).await;
    let sql_client = Arc::new(world.database.client().await);
    let taken = race(&world.store, 6, |racer, store| {
        let (client, all) = (Arc::clone(&sql_client), all.clone());
        async move {
            let mut mine = Vec::new();
            if racer % 2 == 0 {
                for job in &all {
                    mine.extend(
                        client.query_opt(CLAIM, &[job]).await.expect("a claim").map(|row| row.get::<_, Uuid>(0)),
                    );
                }
                return mine;
            }
            loop {
                let wanted =
                    JobRequest { workspace: None, event_types: None, id: None, worker: "api", lease_s: None, limit: 3 };
                let held = store.claim_jobs(&wanted).await.expect("a claim");
                if held.is_empty() {
                    return mine;
                }
                mine.extend(held.into_iter().map(|held| held.job.id));
            }
        }
    })
    .await;
    let mut taken: Vec<Uuid> = taken.into_iter().flatten().collect();
    taken.sort();
    let mut all = all;
    all.sort();
    assert_eq!(taken, all);
}

/// A binding to a definition, and events of its type: jobs of the projector.
pub(crate) async fn our_jobs(world: &World, count: usize) -> WorkspaceId {
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    world.store.bind(Some(workspace), Some(definition), &rule("ours.*"), "test").await.expect("a binding");
    let events: Vec<NewEvent> =
        (0..count).map(|_| NewEvent { workspace: Some(workspace), ..event("ours.placed") }).collect();
    world.store.append(&events).await.expect("an append");
    workspace
}

pub(crate) async fn begins(store: &store::Store, what: impl Fn(usize) -> JobAction) -> Vec<JobStart> {
    let due = store.due_jobs(1_000).await.expect("due jobs");
    let begin = |(at, due): (usize, store::job::projector::DueJob)| JobStart {
        job: due.id,
        retry_count: due.retry_count,
        execution: ExecutionId(new_id()),
        workspace: due.workspace,
        definition: due.definition,
        published: None,
        action: what(at),
    };
    due.into_iter().enumerate().map(begin).collect()
}

pub(crate) fn start(_: usize) -> JobAction {
    let trigger = json!({ "type": "event" });
    JobAction::Start { input: json!({ "a": 1 }), trigger, workflow_id: Some("wf".to_owned()) }
}

async fn started(world: &World) -> (Uuid, ExecutionId) {
    let begins = begins(&world.store, start).await;
    let begun = world.store.begin_jobs(&begins, "host-1", None).await.expect("begun");
    let [JobStartOutcome::Started(execution)] = begun[..] else { panic!("{begun:?}") };
    (begins[0].job, execution)
}

#[tokio::test]
async fn concurrent_projectors_start_each_job_once() {
    let world = World::new().await;
    our_jobs(&world, 40).await;
    let answers = race(&world.store, 4, |_, store| async move {
        let begins = begins(&store, start).await;
        store.begin_jobs(&begins, "host-1", None).await.expect("begun")
    })
    .await;
    let started = answers.into_iter().flatten().filter(|begun| matches!(begun, JobStartOutcome::Started(_))).count();
    assert_eq!((started, world.count("workflow_execution").await), (40, 40));
    assert_eq!(
        world
            .count(
                "workflow_queue_projection p JOIN workflow_execution e ON e.id::text = p.workflow_run_id
        WHERE p.status = 'processing' AND p.workflow_id = 'wf' AND e.idempotency_key = 'event:' || p.id || '/0'"
            )
            .await,
        40
    );
    assert!(world.store.due_jobs(10).await.expect("due").is_empty());
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn the_end_of_an_execution_ends_its_job() {
    let world = World::new().await;
    for (outcome, expected, tried_again) in [
        (execution::Status::Completed, "completed 0", false),
        (execution::Status::Failed, "failed 1", true),
        (execution::Status::TimedOut, "failed 1", true),
        (execution::Status::Canceled, "failed 1", false),
    ] {
        let workspace = our_jobs(&world, 1).await;
        let (job, execution) = started(&world).await;
        assert_eq!(
            sql(&world, COMPLETE, job).await.map_err(|answered| answered.contains("claimed by host-1")),
            Err(true)
        );
        // The error is returned before its transaction has released the job; the next query runs after that.
        world.count("workspace").await;
        let mut end = end(outcome);
        end.output = (outcome == execution::Status::Completed).then(|| json!({ "orgId": 7 }));
        if outcome == execution::Status::Completed {
            // A run that ends by itself uses the same function as every other end.
            let run = world.run(workspace, 1).await.pop().expect("a run");
            let record = store::run::Record { end: Some(end), ..crate::support::record(&run, vec![]) };
            assert!(world.store.record(world.me, &[record], "test").await.expect("a record")[0].held);
        } else {
            world.store.complete(&[Ending { execution, claim: None, end }], None, "test").await.expect("an ending");
        }
        assert_eq!(status(&world, job).await, expected, "{outcome:?}");
        let row = world.store.job(job, None).await.expect("a job");
        assert_eq!(row.result, (outcome == execution::Status::Completed).then(|| json!({ "orgId": 7 })));
        assert_eq!(row.error_message.is_some(), outcome != execution::Status::Completed);
        let again: bool =
            world.get("SELECT retry_from IS NOT NULL FROM workflow_queue_job WHERE id = $1", &[&job]).await;
        assert_eq!(again, tried_again, "{outcome:?}");
        world.run_sql("DELETE FROM event_binding WHERE workspace_id = $1", &[&workspace.0]).await;
    }
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn the_stack_of_a_failed_job_is_the_chain_of_failures() {
    let world = World::new().await;
    let workspace = our_jobs(&world, 1).await;
    let (job, execution) = started(&world).await;
    let run = world.run(workspace, 1).await.pop().expect("a run");
    let failure =
        |message: &str| kernel::run::failure::Failure::new(kernel::run::failure::Class::HttpServerError, message);
    let fact = |status, attempt, message: &str| store::run::NodeFact {
        attempt,
        next_in: Some(Duration::ZERO),
        error: Some(failure(message)),
        ..crate::support::fact("charge", status)
    };
    let record = |facts, end| store::run::Record { end, ..crate::support::record(&run, facts) };
    let retrying = record(vec![fact(kernel::run::node::Status::Retrying, 2, "503")], None);
    world.store.record(world.me, &[retrying], "test").await.expect("a record");
    let mut end = end(execution::Status::Failed);
    end.error = Some(failure("it stayed away").at(kernel::ids::NodeKey::new("charge").expect("a key")));
    let last = store::run::NodeFact { next_in: None, ..fact(kernel::run::node::Status::Failed, 2, "504") };
    world.store.record(world.me, &[record(vec![last], Some(end))], "test").await.expect("a record");
    let row = world.store.job(job, None).await.expect("a job");
    assert_eq!(row.error_message.as_deref(), Some("it stayed away"));
    let stack = row.error_stack.expect("a stack");
    let lines: Vec<&str> = stack.lines().map(|line| line.split(" at 2").next().unwrap_or_default()).collect();
    assert_eq!(lines[0], "HTTP_SERVER_ERROR at charge: it stayed away");
    assert_eq!(lines[1], "  node charge, attempt 2: HTTP_SERVER_ERROR: 504");
    assert!(
        stack
            .lines()
            .nth(2)
            .is_some_and(|line| line.starts_with("    attempt 1") && line.ends_with("HTTP_SERVER_ERROR: 503")),
        "{stack}"
    );
    assert_eq!(world.state(execution).await, "FAILED, FAILED");
}

#[tokio::test]
async fn a_job_that_could_not_end_with_its_execution_is_ended_later() {
    let world = World::new().await;
    our_jobs(&world, 2).await;
    let begins = begins(&world.store, start).await;
    let begun = world.store.begin_jobs(&begins, "host-1", None).await.expect("begun");
    let started = |(begin, begun): (&JobStart, JobStartOutcome)| match begun {
        JobStartOutcome::Started(execution) => (begin.job, execution),
        other => panic!("{other:?}"),
    };
    let ids: Vec<(Uuid, ExecutionId)> = begins.iter().zip(begun).map(started).collect();
    world
        .client
        .batch_execute("ALTER TABLE workflow_queue_projection ADD CONSTRAINT no_end CHECK (status <> 'completed')")
        .await
        .expect("one");
    world.finish(ids[0].1, execution::Status::Completed).await;
    assert_eq!(world.state(ids[0].1).await, "COMPLETED, no item", "the execution ends whatever its job does");
    assert_eq!(status(&world, ids[0].0).await, "processing 0");
    world.client.batch_execute("ALTER TABLE workflow_queue_projection DROP CONSTRAINT no_end").await.expect("none");
    // And one whose execution row was deleted.
    world.run_sql("DELETE FROM workflow_execution WHERE id = $1", &[&ids[1].1.0]).await;
    assert_eq!(world.store.reconcile_jobs(10).await.expect("a pass"), 2);
    assert_eq!(status(&world, ids[0].0).await, "completed 0");
    assert_eq!(status(&world, ids[1].0).await, "pending 0");
    assert_eq!(world.store.reconcile_jobs(10).await.expect("a pass"), 0);
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn a_job_whose_running_execution_was_deleted_fails_and_starts_no_second_run() {
    let world = World::new().await;
    let workspace = our_jobs(&world, 1).await;
    let (job, execution) = started(&world).await;
    world.run(workspace, 1).await.pop().expect("a run");
    world.run_sql("DELETE FROM workflow_execution WHERE id = $1", &[&execution.0]).await;
    assert_eq!(world.store.reconcile_jobs(10).await.expect("a pass"), 0, "its run may be alive");
    assert_eq!(status(&world, job).await, "processing 0");
    assert_eq!(world.store.fail_items_of_missing(&[execution], "test").await.expect("an answer"), [workspace]);
    assert_eq!(status(&world, job).await, "failed 1");
    let row = world.store.job(job, None).await.expect("a job");
    let message = row.error_message.expect("a message");
    assert!(message.contains("is missing") && message.contains(&execution.to_string()), "{message}");
    assert_eq!(world.count("workflow_queue_job WHERE retry_from IS NOT NULL").await, 0, "it is not tried again");
    assert_eq!(world.store.reconcile_jobs(10).await.expect("a pass"), 0);
    assert!(world.store.due_jobs(10).await.expect("due jobs").is_empty());
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn a_job_that_could_not_fail_with_its_lost_execution_is_failed_later() {
    let world = World::new().await;
    let workspace = our_jobs(&world, 1).await;
    let (job, execution) = started(&world).await;
    world.run(workspace, 1).await.pop().expect("a run");
    world.run_sql("DELETE FROM workflow_execution WHERE id = $1", &[&execution.0]).await;
    let alter = async |how: &str| {
        let sql = format!("ALTER TABLE workflow_queue_projection {how}");
        world.client.batch_execute(&sql).await.expect("a change");
    };
    alter("ADD CONSTRAINT no_end CHECK (status <> 'failed')").await;
    assert_eq!(
        world.store.fail_items_of_missing(&[execution], "test").await.expect("an answer"),
        [workspace],
        "its slot is free"
    );
    assert_eq!(status(&world, job).await, "processing 0");
    alter("DROP CONSTRAINT no_end").await;
    assert_eq!(world.store.reconcile_jobs(10).await.expect("a pass"), 1);
    assert_eq!(status(&world, job).await, "failed 1");
    assert_eq!(world.count("workflow_queue_job WHERE retry_from IS NOT NULL").await, 0, "it is not tried again");
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn an_end_does_not_wait_for_a_job_that_somebody_holds_locked() {
    let world = World::new().await;
    let workspace = our_jobs(&world, 2).await;
    let begun = begins(&world.store, start).await;
    let jobs: Vec<Uuid> = begun.iter().map(|begin| begin.job).collect();
    let begun = world.store.begin_jobs(&begun, "host-1", None).await.expect("begun");
    let [JobStartOutcome::Started(ended), JobStartOutcome::Started(lost)] = begun[..] else { panic!("{begun:?}") };
    world.run(workspace, 2).await;
    world.run_sql("DELETE FROM workflow_execution WHERE id = $1", &[&lost.0]).await;
    let mut other = world.database.client().await;
    let held = other.transaction().await.expect("a transaction");
    held.execute("SELECT 1 FROM workflow_queue_projection FOR UPDATE", &[]).await.expect("a lock");

    let ending = Ending { execution: ended, claim: None, end: end(execution::Status::Completed) };
    let ending = world.store.complete(&[ending], None, "test").await.expect("it does not wait").remove(0);
    assert!(ending.applied && ending.freed, "its slot is free");
    assert_eq!(
        world.store.fail_items_of_missing(&[lost], "test").await.expect("it does not wait"),
        [workspace],
        "its slot is free"
    );
    assert_eq!(world.store.reconcile_jobs(10).await.expect("a pass"), 0);
    for job in &jobs {
        assert_eq!(status(&world, *job).await, "processing 0");
    }

    held.rollback().await.expect("unlocked");
    assert_eq!(world.store.reconcile_jobs(10).await.expect("a pass"), 2);
    assert_eq!(status(&world, jobs[0]).await, "completed 0");
    assert_eq!(status(&world, jobs[1]).await, "failed 1");
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn a_job_may_be_skipped_or_unable_to_begin() {
    let world = World::new().await;
    let workspace = our_jobs(&world, 3).await;
    let what = |at| match at {
        0 => JobAction::Skip,
        1 => JobAction::Fail("filter: no".to_owned()),
        _ => start(at),
    };
    world.run_sql("UPDATE workflow_definition SET deleted_at = now() WHERE workspace_id = $1", &[&workspace.0]).await;
    let begins = begins(&world.store, what).await;
    let begun = world.store.begin_jobs(&begins, "host-1", None).await.expect("begun");
    assert_eq!(begun, [JobStartOutcome::Skipped, JobStartOutcome::Failed, JobStartOutcome::Failed]);
    let row = async |at: usize| world.store.job(begins[at].job, None).await.expect("a job");
    assert_eq!(row(0).await.result, Some(json!({ "skipped": true })));
    assert_eq!(row(1).await.error_message.as_deref(), Some("filter: no"));
    assert_eq!(row(2).await.error_message.as_deref(), Some("the definition or its workspace was deleted"));
    assert_eq!(world.count("workflow_execution").await, 0);
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn a_job_checked_against_another_version_is_checked_again() {
    let world = World::new().await;
    our_jobs(&world, 1).await;
    let published: Uuid = world.get("SELECT published_version FROM workflow_definition", &[]).await;
    let judged = async |version: Uuid| {
        let begins = begins(&world.store, start).await;
        let begins: Vec<JobStart> =
            begins.into_iter().map(|begin| JobStart { published: Some(VersionId(version)), ..begin }).collect();
        (begins[0].job, world.store.begin_jobs(&begins, "host-1", None).await.expect("begun"))
    };
    let (job, begun) = judged(new_id()).await;
    assert_eq!((begun, status(&world, job).await), (vec![JobStartOutcome::VersionChanged], "pending 0".to_owned()));
    assert_eq!(world.count("workflow_execution").await, 0);
    let (_, begun) = judged(published).await;
    assert!(matches!(begun[..], [JobStartOutcome::Started(_)]), "{begun:?}");
    let ran: Uuid = world.get("SELECT version_id FROM workflow_execution", &[]).await;
    assert_eq!(ran, published);
}

#[tokio::test]
async fn lost_or_changed_rows_are_rebuilt_from_their_facts_retention_included() {
    let world = World::new().await;
    let all = jobs(&world, 8).await;
    for job in &all[..6] {
        sql(&world, CLAIM, *job).await.expect("a claim");
    }
    let note =
        "UPDATE workflow_queue_projection SET workflow_id = 'org-bootstrap-acme', workflow_run_id = 'r' WHERE id = $1";
    sql(&world, note, all[0]).await.expect("noted");
    for job in &all[1..4] {
        sql(&world, COMPLETE, *job).await.expect("an end");
    }
    sql(&world, FAIL, all[4]).await.expect("an end");
    let past = "UPDATE workflow_queue_projection SET created_at = created_at - interval '3 days', completed_at = completed_at - interval '2 days' WHERE id = $1";
    let damage = async |statement: &str| {
        world
            .client
            .batch_execute(&format!("BEGIN; SET LOCAL forebay.projection = 'rebuild'; {statement}; COMMIT"))
            .await
            .expect(statement);
    };
    damage(&past.replace("$1", &format!("'{}'", all[1]))).await;
    let slice = world.store.retire(Section::Jobs, Duration::from_secs(24 * 3600), None, 10).await.expect("a pass");
    assert_eq!(slice.retired, 1);
    assert_eq!(facts(&world, all[1]).await, "pending claimed completed retired");
    assert_eq!(is_rebuilt_alike(&world).await, 7, "a retired job is not rebuilt");
    let before: Value =
        world.get("SELECT jsonb_agg(to_jsonb(p) ORDER BY id) FROM workflow_queue_projection p", &[]).await;

    damage(&format!("DELETE FROM workflow_queue_projection WHERE id IN ('{}', '{}')", all[0], all[7])).await;
    damage(&format!("UPDATE workflow_queue_projection SET retry_count = 9, result = '[]' WHERE id = '{}'", all[4]))
        .await;
    let extra = "INSERT INTO workflow_queue_projection (event_id, event_type, event_data, stream_id, stream_type) SELECT gen_random_uuid(), 'x', '{}', gen_random_uuid(), 'x'";
    damage(extra).await;
    let found = world.store.check_jobs().await.expect("a check");
    let sizes = |found: &Difference| (found.jobs, found.missing.len(), found.extra.len(), found.changed.len());
    assert_eq!(sizes(&found), (6, 2, 1, 1));
    let rebuilt = world.store.rebuild_jobs().await.expect("a rebuild");
    assert_eq!(sizes(&rebuilt), (7, 2, 1, 1));
    let after: Value =
        world.get("SELECT jsonb_agg(to_jsonb(p) ORDER BY id) FROM workflow_queue_projection p", &[]).await;
    assert_eq!(after, before);
    // And they continue normally.
    sql(&world, COMPLETE, all[0]).await.expect("an end");
    sql(&world, CLAIM, all[7]).await.expect("a claim");
    is_rebuilt_alike(&world).await;
}

#[tokio::test]
async fn ten_thousand_events_of_eight_writers_make_ten_thousand_jobs_and_a_rebuild_equals_them() {
    let world = World::new().await;
    world.store.bind(None, None, &rule("order.*"), "test").await.expect("a binding");
    let mut writers = Vec::new();
    for writer in 0..8_i32 {
        let mut client = world.database.client().await;
        writers.push(tokio::spawn(async move {
            let insert = "INSERT INTO domain_events (stream_id, stream_type, stream_version, event_type, event_data)
                          SELECT gen_random_uuid(), 'order', 1, 'order.placed', jsonb_build_object('n', n) FROM generate_series(1, $1::int) n";
            let move_on = "WITH t AS (SELECT id FROM workflow_queue_projection WHERE status = $1 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED)
                UPDATE workflow_queue_projection p SET status = $2, worker_id = 'w', error_message = CASE WHEN $2 = 'failed' THEN 'no' END FROM t WHERE p.id = t.id";
            // Long and short transactions, between them 1,250 events each.
            for round in 0..25 {
                let transaction = client.transaction().await.expect("a transaction");
                for _ in 0..if round % 5 == writer % 5 { 5 } else { 1 } {
                    let size = if round % 5 == writer % 5 { 10 } else { 50 };
                    transaction.execute(insert, &[&size]).await.expect("events");
                }
                transaction.execute(move_on, &[&"pending", &"processing", &20_i64]).await.expect("claims");
                transaction.execute(move_on, &[&"processing", &"completed", &10_i64]).await.expect("ends");
                transaction.execute(move_on, &[&"processing", &"failed", &5_i64]).await.expect("ends");
                match round % 7 {
                    0 => transaction.rollback().await.expect("undone"),
                    _ => transaction.commit().await.expect("done"),
                }
                if round % 7 == 0 {
                    client.execute(insert, &[&50_i32]).await.expect("events");
                }
            }
        }));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    assert_eq!(world.count("domain_events WHERE event_type = 'order.placed'").await, 10_000);
    assert_eq!(is_rebuilt_alike(&world).await, 10_000);
    let gaps = "(SELECT stream_id FROM domain_events WHERE stream_type = 'workflow_queue' GROUP BY stream_id HAVING count(*) <> max(stream_version)) x";
    assert_eq!(world.count(gaps).await, 0);
}
