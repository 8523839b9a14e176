//! With a million rows, the cost of a call depends on the rows that it returns, not on the rows that it skips.
//!
//! Cost is counted in buffers, never in time. Rows are inserted without indexes, which are created again afterwards.

use kernel::ids::{ProcessId, WorkspaceId};
use store::new_id;
use uuid::Uuid;

use crate::plans::touched;
use crate::support::{DEAD_AFTER, ENGINE, STALE_AFTER, World};

/// The text of a statement of the store.
macro_rules! sql {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql"))
    };
}

const MILLION: i32 = 1_000_000;
/// The maximum number of buffers for a call that finds nothing.
const FEW: i64 = 150;

/// Fills tables while their indexes are dropped and their triggers are off.
async fn fill(world: &World, tables: &[&str], fills: &[String]) {
    let (names, settings) = (tables.join("', '"), "SET statement_timeout = 0; SET synchronous_commit = off");
    world.client.batch_execute(settings).await.expect("settings");
    let indexes = format!(
        "SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index i
          WHERE i.indrelid::regclass::text IN ('{names}') AND NOT i.indisprimary
            AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.indexrelid)"
    );
    let indexes = world.client.query(&indexes, &[]).await.expect("the indexes");
    for table in tables {
        let quiet =
            format!("ALTER TABLE {table} DISABLE TRIGGER USER; ALTER TABLE {table} SET (autovacuum_enabled = off)");
        world.client.batch_execute(&quiet).await.expect("quiet");
    }
    for index in &indexes {
        world.client.batch_execute(&format!("DROP INDEX {}", index.get::<_, String>(0))).await.expect("dropped");
    }
    for fill in fills {
        world.client.batch_execute(fill).await.expect("rows");
    }
    for index in &indexes {
        world.client.batch_execute(index.get(1)).await.expect("built");
    }
    // The settings of every connection of the store; with statistics, as every table of this size has.
    world
        .client
        .batch_execute("ANALYZE; SET enable_seqscan = off; SET random_page_cost = 1.1; SET jit = off")
        .await
        .expect("settings");
}

/// A million parked runs: slots without an owner.
async fn parked(world: &World) {
    let id = "(lpad(to_hex(n), 12, '0') || '70008000000000000000')::uuid";
    let workspace = "('00000000-0000-4000-8000-' || lpad(to_hex(n % 10000), 12, '0'))::uuid";
    let (other, me) = ("'00000000-0000-4000-8000-000000000000'::uuid", world.me.0);
    let executions = format!(
        "INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics, engine, started_at,
                deadline_at, owner_epoch)
         SELECT {id}, {workspace}, {other}, {other}, 'RUNNING', 1, '{ENGINE}', now(), now() + interval '1 day', 1
           FROM generate_series(1, {MILLION}) n"
    );
    let slots = format!(
        "INSERT INTO execution_queue (id, workspace_id, workflow_definition_id, rank, stage, status, claim_number, claim_id,
                claimed_by, claimed_at, dispatched_at)
         SELECT {id}, {workspace}, {other}, n, 5, 'DISPATCHED', n, {other}, '{me}', now(), now() FROM generate_series(1, {MILLION}) n"
    );
    let parked = format!(
        "INSERT INTO run_request (execution_id, root, engine, wake_at)
         SELECT {id}, {id}, '{ENGINE}', now() + interval '1 day' FROM generate_series(1, {MILLION}) n"
    );
    fill(world, &["workflow_execution", "execution_queue", "run_request"], &[executions, slots, parked]).await;
}

#[tokio::test]
async fn recovery_reads_only_the_slots_it_looks_for() {
    let world = World::new().await;
    parked(&world).await;
    let (me, shards): (Uuid, Vec<i16>) = (world.me.0, (0..64).collect());
    let (dead, stale, semantics) = (DEAD_AFTER.as_secs_f64(), STALE_AFTER.as_secs_f64(), kernel::SEMANTICS);
    for mode in ["force_custom_plan", "force_generic_plan"] {
        world.client.batch_execute(&format!("SET plan_cache_mode = {mode}")).await.expect("a mode");
        let orphans = sql!("workflow_execution/take_over_orphans");
        let buffers = touched(&world, orphans, &[&shards, &me, &dead, &true, &ENGINE, &100_i64, &semantics]).await;
        assert!(buffers < FEW, "orphans: {buffers} buffers, {mode}");
        let takeover = sql!("execution_queue/takeover");
        let buffers = touched(&world, takeover, &[&shards, &dead, &stale, &new_id(), &me, &true]).await;
        assert!(buffers < FEW, "takeover: {buffers} buffers, {mode}");
        let buffers = touched(&world, sql!("workflow_execution/owned"), &[&me, &ENGINE]).await;
        assert!(buffers < FEW, "owned: {buffers} buffers, {mode}");
        for (what, statement) in [
            ("overdue", sql!("workflow_execution/overdue")),
            ("the next deadline", sql!("workflow_execution/next_deadline")),
        ] {
            let buffers = touched(&world, statement, &[]).await;
            assert!(buffers < FEW, "{what}: {buffers} buffers, {mode}");
        }
        let buffers = touched(&world, sql!("workflow_execution/next_wake"), &[&ENGINE]).await;
        assert!(buffers < FEW, "the next wake-up: {buffers} buffers, {mode}");
        let wake = sql!("workflow_execution/wake_due");
        let buffers = touched(&world, wake, &[&me, &100_i64, &ENGINE, &semantics]).await;
        assert!(buffers < FEW, "wake: {buffers} buffers, {mode}");
        let forget = touched(&world, sql!("process/delete_old"), &[]).await;
        assert!(forget < FEW, "forget: {forget} buffers, {mode}");
        // A page of ten, in the middle: it reads ten slots and their executions.
        let half: Uuid = world.get("SELECT (lpad(to_hex(500000), 12, '0') || '70008000000000000000')::uuid", &[]).await;
        let dispatched_runs = sql!("execution_queue/dispatched_runs");
        let buffers = touched(&world, dispatched_runs, &[&shards, &0.0_f64, &half, &ENGINE, &10_i64]).await;
        assert!(buffers < FEW, "dispatched runs: {buffers} buffers, {mode}");
    }
    // It still finds what it looks for.
    let other = ProcessId(new_id());
    for table in ["workflow_execution", "execution_queue"] {
        let sql = format!("UPDATE {table} SET owner = $1 WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT 3)");
        world.run_sql(&sql, &[&other.0]).await;
    }
    let silence = store::queue::claim::LivenessRule { dead_after: DEAD_AFTER, steady: true };
    let orphans = world.store.take_over_orphans(&shards, world.me, silence, ENGINE, 10).await.expect("orphans");
    assert_eq!(orphans.len(), 3);
    assert_eq!(world.store.owned_runs(world.me, ENGINE).await.expect("owned").len(), 3);
}

/// A million pending jobs of a type and a workspace that nobody here asks for, and five of another.
async fn jobs(world: &World, mine: WorkspaceId, other: WorkspaceId) {
    let id = "('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid";
    let of = format!(
        "SELECT n, {id} AS id, CASE WHEN n > {MILLION} THEN 'rare.thing' ELSE 'common.thing' END AS type,
                CASE WHEN n > {MILLION} THEN '{}'::uuid ELSE '{}'::uuid END AS workspace, now() - interval '1 day' + n * interval '1 ms' AS at
           FROM generate_series(1, {MILLION} + 5) n",
        mine.0, other.0
    );
    let rows = format!(
        "INSERT INTO workflow_queue_projection (id, event_id, event_type, event_data, stream_id, stream_type, created_at)
         SELECT id, id, type, '{{}}', id, 's', at FROM ({of}) t"
    );
    let beside = format!(
        "INSERT INTO workflow_queue_job (id, workspace_id, event_type, version, pending_since) SELECT id, workspace, type, 1, at FROM ({of}) t"
    );
    fill(world, &["workflow_queue_projection", "workflow_queue_job"], &[rows, beside]).await;
    world.client.batch_execute("ALTER TABLE workflow_queue_projection ENABLE TRIGGER USER").await.expect("triggers");
}

#[tokio::test]
async fn a_claim_of_one_type_reads_no_job_of_another() {
    let world = World::new().await;
    let (mine, other) = (world.workspace("PRO").await, world.workspace("PRO").await);
    jobs(&world, mine, other).await;
    let claim = sql!("workflow_queue_projection/claim");
    let (none, lease, one) = (None::<Uuid>, 60_i32, 1_i32);
    for (types, workspace) in
        [("rare.thing", None), ("rare.*", None), ("rare.thing", Some(mine.0)), ("rare.*", Some(mine.0))]
    {
        let types = vec![types];
        let buffers = touched(&world, claim, &[&workspace, &types, &none, &"w", &lease, &one]).await;
        assert!(buffers < 500, "{types:?} of {workspace:?}: {buffers} buffers for one job");
    }
    // None of that type there: the others are not read either.
    let buffers = touched(&world, claim, &[&Some(other.0), &vec!["rare.*"], &none, &"w", &lease, &one]).await;
    assert!(buffers < FEW, "{buffers} buffers for none");
}

#[tokio::test]
async fn a_page_of_a_workspaces_events_reads_none_of_the_others() {
    let world = World::new().await;
    let (mine, other) = (world.workspace("PRO").await, world.workspace("PRO").await);
    let id = "('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid";
    let rows = format!(
        "INSERT INTO domain_events (id, workspace_id, stream_id, stream_type, stream_version, event_type, event_data, processing_error,
                processing_failed_at)
         SELECT {id}, CASE WHEN n <= 5 THEN '{}'::uuid ELSE '{}'::uuid END, {id}, 's', 1, 'thing', '{{}}',
                CASE WHEN n % 2 = 1 THEN 'x' END, CASE WHEN n % 2 = 1 THEN now() END
           FROM generate_series(1, {MILLION}) n",
        mine.0, other.0
    );
    fill(&world, &["domain_events"], &[rows]).await;
    let (before, no_stream, no_type) = (i64::MAX, None::<Uuid>, None::<&str>);
    for mode in ["force_custom_plan", "force_generic_plan"] {
        world.client.batch_execute(&format!("SET plan_cache_mode = {mode}")).await.expect("a mode");
        for (statement, kind, failed) in [
            (sql!("domain_events/list_of"), None, false),
            (sql!("domain_events/list_of_type"), Some("thing"), false),
            (sql!("domain_events/list_failed_of"), None, true),
        ] {
            let buffers =
                touched(&world, statement, &[&before, &kind, &no_stream, &no_type, &failed, &200_i64, &mine.0]).await;
            assert!(buffers < FEW, "{kind:?}, failed: {failed}: {buffers} buffers for five events, {mode}");
        }
    }
}
