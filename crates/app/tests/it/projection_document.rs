//! Runs every SQL statement of `workflow-queue-projection.md` with `psql` against a running service. The statements are
//! copied literally; only the placeholders (`job-uuid-here`, `org-uuid-here`) are filled in.

use std::process::Command;

use serde_json::json;

use crate::support::World;
use crate::support::cli::Cli;
use crate::support::tenant::text;

const PENDING: &str = "\
SELECT *
FROM workflow_queue_projection
WHERE status = 'pending'
ORDER BY created_at ASC;";
const FAILED: &str = "\
SELECT *
FROM workflow_queue_projection
WHERE status = 'failed'
  AND retry_count < 3
ORDER BY failed_at ASC;";
const HISTORY: &str = "\
SELECT
  workflow_id,
  status,
  created_at,
  completed_at,
  error_message
FROM workflow_queue_projection
WHERE stream_id = 'org-uuid-here'
ORDER BY created_at DESC;";
const CLAIM: &str = "\
UPDATE workflow_queue_projection
SET
  status = 'processing',
  worker_id = 'worker-hostname-1234',
  claimed_at = now(),
  updated_at = now()
WHERE id = 'job-uuid-here'
  AND status = 'pending'
RETURNING *;";
const COMPLETE: &str = "\
UPDATE workflow_queue_projection
SET
  status = 'completed',
  completed_at = now(),
  result = '{\"orgId\": \"...\", \"domain\": \"...\"}'::jsonb,
  updated_at = now()
WHERE id = 'job-uuid-here';";
const FAIL: &str = "\
UPDATE workflow_queue_projection
SET
  status = 'failed',
  failed_at = now(),
  error_message = 'DNS verification timeout',
  error_stack = '...',
  retry_count = retry_count + 1,
  updated_at = now()
WHERE id = 'job-uuid-here';";
const EVENT: &str = "\
INSERT INTO domain_events (stream_id, stream_type, stream_version, event_type, event_data)
VALUES (gen_random_uuid(), 'organization', 1, 'organization.bootstrap.initiated', '{\"subdomain\": \"acme\"}')";

/// What `psql` prints: rows, or the tag of a statement that has none; or what it complains of.
fn psql(world: &World, sql: &str) -> Result<Vec<String>, String> {
    let done = Command::new("psql")
        .args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &world.database.url, "-c", sql])
        .output()
        .expect("psql runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match done.status.success() {
        true => Ok(text(&done.stdout).lines().map(str::to_owned).collect()),
        false => Err(text(&done.stderr)),
    }
}

/// A world where the document's event is bound, to external workers only; and its jobs.
async fn jobs(count: usize) -> (World, Vec<String>) {
    // Failed jobs are looked at, so they must not come back meanwhile.
    let world = World::with(&["job.retry_after_ms=3600000"]).await;
    let root = world.server.api();
    root.post("bindings", json!({ "eventType": "organization.bootstrap.initiated" })).await.expect(201);
    for _ in 0..count {
        psql(&world, EVENT).expect("an event");
    }
    let ids = psql(&world, "SELECT id FROM workflow_queue_projection ORDER BY created_at").expect("jobs");
    assert_eq!(ids.len(), count);
    (world, ids)
}

fn of(statement: &str, job: &str) -> String {
    statement.replace("job-uuid-here", job)
}

#[tokio::test]
async fn a_fresh_service_makes_a_job_of_the_documents_event_and_says_of_others_that_nothing_is_bound() {
    let world = World::new().await;
    let root = world.server.api();
    psql(&world, EVENT).expect("an event");
    let pending = psql(&world, PENDING).expect("the pending query");
    assert!(pending.len() == 1 && pending[0].contains("|organization.bootstrap.initiated|"), "{pending:?}");
    psql(&world, &EVENT.replace("bootstrap.initiated", "renamed")).expect("an event");
    assert_eq!(psql(&world, PENDING).expect("the pending query").len(), 1, "nobody bound the other");
    let listed = root.get("events?streamType=organization").await.expect(200);
    let bound = |at: usize| (&listed["items"][at]["type"], &listed["items"][at]["bound"]);
    assert_eq!(bound(0), (&json!("organization.renamed"), &json!(false)), "{listed}");
    assert_eq!(bound(1), (&json!("organization.bootstrap.initiated"), &json!(true)), "{listed}");
    let cli = Cli::of(&world.server.base, world.server.root_key().expose());
    let observed = cli.run(&["event", "append", "order.placed", "--stream-type", "order"]).await;
    assert!(
        observed.code == 0 && observed.stderr.contains("no binding matches the type of this event"),
        "{observed:?}"
    );
    let shown = cli.ok(&["event", "ls", "--type", "order.placed"]).await;
    assert!(shown.contains("none: unbound"), "{shown}");
    // It is listed, stays, and gives way to one that somebody makes.
    let bindings = root.get("bindings").await.expect(200);
    let (id, built_in) = (&bindings["items"][0]["id"], &bindings["items"][0]["builtIn"]);
    assert_eq!(built_in, &json!(true), "{bindings}");
    assert_eq!(root.delete(&format!("bindings/{}", text(id))).await.problem(409), "conflict");
    let own = json!({ "eventType": "organization.bootstrap.initiated", "leaseSeconds": 7 });
    let own = root.post("bindings", own).await.expect(201);
    psql(&world, EVENT).expect("an event");
    let leases = psql(&world, "SELECT binding_id, lease_s FROM workflow_queue_job ORDER BY lease_s").expect("jobs");
    assert_eq!(leases, [format!("{}|7", text(&own["id"])), "|900".to_owned()]);
}

#[tokio::test]
async fn every_statement_of_the_document_works_as_it_says() {
    let (world, ids) = jobs(2).await;
    let pending = psql(&world, PENDING).expect("the pending query");
    assert_eq!(pending.len(), 2);
    assert!(pending[0].starts_with(&ids[0]) && pending[1].starts_with(&ids[1]), "the oldest first: {pending:?}");
    let claimed = psql(&world, &of(CLAIM, &ids[0])).expect("a claim");
    assert!(claimed[0].starts_with(&ids[0]) && claimed[0].contains("|processing|worker-hostname-1234|"), "{claimed:?}");
    assert_eq!(claimed[1], "UPDATE 1");
    assert_eq!(psql(&world, &of(CLAIM, &ids[0])).expect("a second claim"), ["UPDATE 0"]);
    assert_eq!(psql(&world, &of(COMPLETE, &ids[0])).expect("an end"), ["UPDATE 1"]);
    psql(&world, &of(CLAIM, &ids[1])).expect("a claim");
    assert_eq!(psql(&world, &of(FAIL, &ids[1])).expect("an end"), ["UPDATE 1"]);
    assert_eq!(psql(&world, PENDING).expect("the pending query"), [""; 0]);
    let failed = psql(&world, FAILED).expect("the failed query");
    assert!(
        failed.len() == 1 && failed[0].starts_with(&ids[1]) && failed[0].contains("|DNS verification timeout|...|1|"),
        "{failed:?}"
    );
    let org = psql(&world, &format!("SELECT stream_id FROM workflow_queue_projection WHERE id = '{}'", ids[0]))
        .expect("an id");
    let history = psql(&world, &HISTORY.replace("org-uuid-here", &org[0])).expect("the history query");
    assert!(history.len() == 1 && history[0].starts_with("|completed|"), "{history:?}");
}

#[tokio::test]
async fn a_pending_job_is_neither_completed_nor_failed_and_there_is_no_fifth_status() {
    let (world, ids) = jobs(1).await;
    for (statement, expected) in [
        (of(COMPLETE, &ids[0]), "a pending job cannot be completed: claim it first"),
        (of(FAIL, &ids[0]), "a pending job cannot be failed: claim it first"),
        (
            of("UPDATE workflow_queue_projection SET status = 'stuck' WHERE id = 'job-uuid-here'", &ids[0]),
            "violates check constraint",
        ),
    ] {
        let refused = psql(&world, &statement).expect_err("refused");
        assert!(refused.contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn the_failed_query_returns_those_below_three_failures_in_the_order_in_which_they_failed() {
    let (world, ids) = jobs(4).await;
    let again =
        |job: &str| of("UPDATE workflow_queue_projection SET status = 'pending' WHERE id = 'job-uuid-here'", job);
    // The last fails first; the first fails three times.
    for (job, failures) in [(&ids[3], 1), (&ids[1], 2), (&ids[0], 3)] {
        for failure in 0..failures {
            if failure > 0 {
                psql(&world, &again(job)).expect("a retry");
            }
            psql(&world, &of(CLAIM, job)).expect("a claim");
            psql(&world, &of(FAIL, job)).expect("an end");
        }
    }
    let failed = psql(&world, FAILED).expect("the failed query");
    let found: Vec<&str> = failed.iter().map(|row| &row[..36]).collect();
    assert_eq!(found, [ids[3].as_str(), ids[1].as_str()]);
    let refused = psql(&world, &again(&ids[0])).expect_err("no fourth try");
    assert!(refused.contains("a job that failed 3 times cannot be retried"), "{refused}");
}

#[tokio::test]
async fn the_table_has_the_documents_columns_types_and_defaults_and_no_more() {
    let (world, _) = jobs(0).await;
    let columns = psql(
        &world,
        "SELECT column_name || ' ' || CASE udt_name WHEN 'int4' THEN 'integer' ELSE udt_name END || ' ' || is_nullable
                || coalesce(' ' || column_default, '')
           FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'workflow_queue_projection' ORDER BY ordinal_position",
    )
    .expect("the columns");
    let document = "\
id uuid NO gen_random_uuid()
event_id uuid NO
event_type text NO
event_data jsonb NO
stream_id uuid NO
stream_type text NO
status text NO 'pending'::text
worker_id text YES
claimed_at timestamptz YES
workflow_id text YES
workflow_run_id text YES
completed_at timestamptz YES
failed_at timestamptz YES
error_message text YES
error_stack text YES
retry_count integer NO 0
result jsonb YES
created_at timestamptz NO now()
updated_at timestamptz NO now()";
    assert_eq!(columns.join("\n"), document);
}
