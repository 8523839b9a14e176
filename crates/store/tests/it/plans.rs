//! The cost of a call depends on its arguments, not on how many executions are queued or have ended.
//!
//! Cost is counted in buffers, never in time. Each call runs before and after the tables are analyzed, because
//! statistics from a time with few rows must not change its plan.

use kernel::ids::{DefinitionId, WorkspaceId};
use serde_json::{Value, json};
use tokio_postgres::types::ToSql;

use crate::support::{DEAD_AFTER, ENGINE, Limits, STALE_AFTER, World};

const SHARD: i16 = 9;
const MANY: i32 = 50_000;

/// The text of a statement of the store.
macro_rules! sql {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql"))
    };
}

struct Busy {
    world: World,
    workspace: WorkspaceId,
    definition: DefinitionId,
}

/// A shard with a full workspace and its backlog; and another workspace with delayed items, items of a paused
/// definition and of many keys, dead letters, a long history, and a few ready items.
async fn busy() -> Busy {
    let world = World::new().await;
    // A claim moves a mark at random, which costs more.
    world.move_marks(false).await;
    let full = world.workspace_weighing("FREE", 1, Some(9)).await;
    let flood = world.definition(full, Limits::default()).await;
    world.accept_many(full, flood, 1).await;
    world.run(full, 1).await;
    let workspace = world.workspace_weighing("ENTERPRISE", 1, Some(9)).await;
    let definition = world.definition(workspace, Limits::default()).await;
    let paused = world.definition(workspace, Limits::default()).await;
    world.run_sql("UPDATE workflow_definition SET status = 'PAUSED' WHERE id = $1", &[&paused.0]).await;
    world
        .client
        .batch_execute("ALTER TABLE execution_queue SET (autovacuum_enabled = off); ALTER TABLE workflow_execution SET (autovacuum_enabled = off)")
        .await
        .expect("no autovacuum");
    wait(&world, full, flood, 0, "NULL").await;
    wait(&world, workspace, definition, 1, "NULL").await;
    wait(&world, workspace, paused, 3, "NULL").await;
    wait(&world, workspace, paused, 2, "n::text").await;
    wait(&world, workspace, definition, 9, "NULL").await;
    let history =
        "INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics,
            idempotency_key, fingerprint, completed_at, deadline_at)
        SELECT gen_random_uuid(), $1, $2, gen_random_uuid(), 'COMPLETED', 1, n::text, 'x', now(), now()
          FROM generate_series(1, $3::int) n";
    world.run_sql(history, &[&workspace.0, &definition.0, &MANY]).await;
    world.accept_many(workspace, definition, 100).await;
    Busy { world, workspace, definition }
}

/// Many items of one definition at one stage.
async fn wait(world: &World, workspace: WorkspaceId, definition: DefinitionId, stage: i16, key: &str) {
    let sql = format!(
        "INSERT INTO execution_queue (id, workspace_id, workflow_definition_id, rank, stage, limited, status,
                concurrency_key, last_error, available_at)
         SELECT i.id, $1, $2, n, $3::smallint, $3::smallint IN (2, 3), CASE WHEN $3 = 9 THEN 'FAILED' ELSE 'PENDING' END,
                {key}, CASE WHEN $3 = 9 THEN 'x' END, now() + interval '1 day'
           FROM generate_series(1, $4::int) n CROSS JOIN LATERAL (SELECT gen_random_uuid() AS id, n AS m) i"
    );
    world.run_sql(&sql, &[&workspace.0, &definition.0, &stage, &MANY]).await;
}

/// How many buffers a call touches once its session is warm.
pub(crate) async fn touched(world: &World, sql: &str, params: &[&(dyn ToSql + Sync)]) -> i64 {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}");
    let mut touched = 0;
    for _ in 0..2 {
        world.client.batch_execute("BEGIN").await.expect("begin");
        let row = world.client.query_one(&explain, params).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        world.client.batch_execute("ROLLBACK").await.expect("rollback");
        let plan: Value = row.get(0);
        let of = |what: &str| plan[0]["Plan"][what].as_i64().expect("a number of buffers");
        touched = of("Shared Hit Blocks") + of("Shared Read Blocks");
    }
    touched
}

#[tokio::test]
async fn a_claim_beside_a_flood_touches_few_buffers() {
    let Busy { world, workspace, .. } = busy().await;
    let claim = sql!("execution_queue/claim");
    let id = store::new_id();
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE").await.expect("statistics");
        }
        for (engine, bound, moves_a_mark) in [(None, 300, false), (Some(ENGINE), 450, false), (None, 500, true)] {
            world.move_marks(moves_a_mark).await;
            let (wanted, asked) = (vec![10], vec![workspace.0]);
            let (semantics, protocol) = (kernel::SEMANTICS, store::release::PROTOCOL);
            let params: [&(dyn ToSql + Sync); 7] = [&asked, &wanted, &id, &world.me.0, &engine, &semantics, &protocol];
            let buffers = touched(&world, claim, &params).await;
            assert!(buffers < bound, "{buffers} buffers for ten items, analysed: {analysed}, engine: {engine:?}");
        }
    }
}

#[tokio::test]
async fn the_other_calls_of_an_items_life_touch_few_buffers_too() {
    let Busy { world, workspace, definition } = busy().await;
    let begun = world.run(workspace, 2).await;
    let (claimed, claim) = world.claim_one(world.me, workspace).await;
    let run = vec![begun[0].execution.0];
    let (me, none) = (world.me.0, Vec::<i32>::new());
    let (nothing, no_text) = (Vec::<Value>::new(), Vec::<String>::new());
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE").await.expect("statistics");
        }
        let check = async |what: &str, bound: i64, sql: &str, params: &[&(dyn ToSql + Sync)]| {
            let buffers = touched(&world, sql, params).await;
            assert!(buffers < bound, "{what}: {buffers} buffers, analysed: {analysed}");
        };
        let enqueue = "SELECT forebay.enqueue($1, $2, '{}', idempotency_key => $3)";
        for key in [None, Some("7"), Some("new")] {
            let sql = format!("{enqueue} WHERE $3::text IS DISTINCT FROM '7'");
            check("enqueue", 200, &sql, &[&workspace.0, &definition.0, &key]).await;
        }
        let old = "SELECT outcome FROM forebay.enqueue_many(ARRAY[gen_random_uuid()], ARRAY[$1::uuid], ARRAY[$2::uuid],
            ARRAY[NULL::jsonb], ARRAY[3::smallint], ARRAY[NULL::timestamptz], ARRAY[NULL::text], ARRAY['7'], ARRAY['x'::bytea],
            ARRAY[NULL::jsonb], ARRAY[NULL::text], ARRAY[NULL::uuid], ARRAY[NULL::uuid], ARRAY['test'], 1, 60000, NULL, true)";
        check("enqueue of an existing key", 100, old, &[&workspace.0, &definition.0]).await;
        let (place, semantics) = (None::<&str>, kernel::SEMANTICS);
        let begin: [&(dyn ToSql + Sync); 5] = [&vec![claimed.0], &ENGINE, &place, &me, &semantics];
        check("begin", 100, sql!("workflow_execution/begin"), &begin).await;
        check("dispatched", 50, sql!("execution_queue/mark_dispatched"), &[&vec![claimed.0], &vec![claim.0]]).await;
        let end: (&[&str], &[Option<Value>], Option<&str>) = (&["COMPLETED"], &[None], None);
        let (complete, claims) = (sql!("workflow_execution/complete"), vec![None::<uuid::Uuid>]);
        check("complete", 150, complete, &[&run, &end.0, &end.1, &end.1, &claims, &end.2, &"test"]).await;
        let (epochs, park, node, one, status) = (vec![1i64], vec![Some(1i64)], vec!["a"], vec![1], vec!["COMPLETED"]);
        let (no_ms, no_label, no_json) = (vec![None::<i64>], vec![None::<String>], vec![None::<Value>]);
        let params: [&(dyn ToSql + Sync); 22] = [
            &me,
            &run,
            &run,
            &epochs,
            &park,
            &one,
            &node,
            &one,
            &status,
            &one,
            &no_ms,
            &no_label,
            &no_json,
            &vec![json!({ "a": 1 })],
            &no_json,
            &vec![false],
            &none,
            &none,
            &no_text,
            &nothing,
            &nothing,
            &"test",
        ];
        check("record", 150, sql!("workflow_execution/record"), &params).await;
    }
}

#[tokio::test]
async fn the_polling_loops_skip_the_backlog() {
    let Busy { world, workspace, definition } = busy().await;
    let me = world.me.0;
    let (dead, stale, id) = (DEAD_AFTER.as_secs_f64(), STALE_AFTER.as_secs_f64(), store::new_id());
    let (engine, room, semantics) = (ENGINE, 100i64, kernel::SEMANTICS);
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE").await.expect("statistics");
        }
        let check = async |what: &str, sql: &str, params: &[&(dyn ToSql + Sync)]| {
            let buffers = touched(&world, sql, params).await;
            let bound = if what == "beat" { 400 } else { 60 };
            assert!(buffers < bound, "{what}: {buffers} buffers, analysed: {analysed}");
        };
        check("sweep", sql!("execution_queue/sweep"), &[&vec![SHARD]]).await;
        check("shards in use", sql!("execution_queue/shards_in_use"), &[&vec![SHARD]]).await;
        check("items of deleted workspaces", sql!("execution_queue/items_of_deleted"), &[&SHARD]).await;
        let (ws, def) = (vec![workspace.0; 10], vec![definition.0; 10]);
        check(
            "blocked items of deleted definitions",
            sql!("execution_queue/blocked_items_of_deleted"),
            &[&SHARD, &ws, &def],
        )
        .await;
        check("runs of deleted workspaces", sql!("execution_queue/runs_of_deleted"), &[&SHARD]).await;
        check("deleted definitions", sql!("workflow_definition/clearing"), &[&SHARD]).await;
        check("promote", sql!("execution_queue/promote"), &[]).await;
        check("next due", sql!("execution_queue/next_due"), &[]).await;
        check("takeover", sql!("execution_queue/takeover"), &[&vec![SHARD], &dead, &stale, &id, &me, &true]).await;
        let orphans = sql!("workflow_execution/take_over_orphans");
        check("orphans", orphans, &[&vec![SHARD], &me, &dead, &true, &engine, &room, &semantics]).await;
        check("wake", sql!("workflow_execution/wake_due"), &[&me, &room, &engine, &semantics]).await;
        check("next wake", sql!("workflow_execution/next_wake"), &[&engine]).await;
        check("overdue", sql!("workflow_execution/overdue"), &[]).await;
        check("owned", sql!("workflow_execution/owned"), &[&me, &engine]).await;
        let count = sql!("workflow_execution/count_orphans");
        check("orphans counted", count, &[&vec![SHARD], &dead, &true, &engine, &room, &semantics]).await;
        let beat = (3.0, 10.0);
        check("beat", sql!("process/heartbeat"), &[&me, &true, &true, &0i32, &beat.0, &beat.1]).await;
    }
}

#[tokio::test]
async fn what_belongs_to_a_root_is_found_without_reading_other_executions() {
    let Busy { world, workspace, .. } = busy().await;
    let root = world.run(workspace, 1).await[0].execution.0;
    // The settings of every connection of the store.
    world.client.batch_execute("SET enable_seqscan = off; SET random_page_cost = 1.1").await.expect("settings");
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE").await.expect("statistics");
        }
        for statement in [sql!("workflow_execution/open_below"), sql!("workflow_execution_wait/reread_answers")] {
            let buffers = touched(&world, statement, &[&root]).await;
            assert!(buffers < 60, "{buffers} buffers, analysed: {analysed}: {statement}");
        }
        let (age, first, count, rows) = (-60.0, uuid::Uuid::nil(), 100, 1_000);
        let retire = sql!("workflow_execution/retire");
        let buffers = touched(&world, retire, &[&age, &age, &first, &count, &rows]).await;
        assert!(buffers < 10_000, "{buffers} buffers to delete {count} executions, analysed: {analysed}");
    }
}

#[tokio::test]
async fn plans_made_while_the_queue_was_empty_are_not_kept_when_it_fills() {
    let world = World::new().await;
    world.move_marks(false).await;
    let workspace = world.workspace_weighing("ENTERPRISE", 1, Some(9)).await;
    let definition = world.definition(workspace, Limits::default()).await;
    world.client.batch_execute("VACUUM ANALYZE").await.expect("statistics of empty tables");
    let (id, me) = (store::new_id(), world.me.0);
    let calls = [
        (
            "claim",
            sql!("execution_queue/claim"),
            format!("ARRAY['{}']::uuid[], ARRAY[10], '{id}', '{me}', NULL, 1, 1", workspace.0),
        ),
        ("sweep", sql!("execution_queue/sweep"), format!("ARRAY[{SHARD}]")),
        ("takeover", sql!("execution_queue/takeover"), format!("ARRAY[{SHARD}], 10, 300, '{id}', '{me}', true")),
        (
            "orphans",
            sql!("workflow_execution/take_over_orphans"),
            format!("ARRAY[{SHARD}], '{me}', 10, true, '{ENGINE}', 100, 1"),
        ),
    ];
    for (name, sql, params) in &calls {
        let made =
            format!("SET plan_cache_mode = force_generic_plan; PREPARE {name} AS {sql}; EXECUTE {name}({params})");
        world.client.batch_execute(&made).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    wait(&world, workspace, definition, 0, "NULL").await;
    world.client.batch_execute("SELECT pg_stat_force_next_flush()").await.expect("statistics flushed");
    assert!(world.store.analyze_grown_tables().await.expect("an answer") > 0);
    for (name, _, params) in calls {
        let buffers = touched(&world, &format!("EXECUTE {name}({params})"), &[]).await;
        assert!(buffers < 300, "{name}: {buffers} buffers");
    }
    assert_eq!(world.store.analyze_grown_tables().await.expect("an answer"), 0, "it has not grown since");
}

#[tokio::test]
async fn the_cost_of_a_sample_does_not_depend_on_the_backlog() {
    let Busy { world, .. } = busy().await;
    let sample = sql!("execution_queue/sample");
    let (most, workspaces) = (100, 500);
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE").await.expect("statistics");
        }
        for shard in [SHARD, 0] {
            let buffers = touched(&world, sample, &[&shard, &most, &workspaces]).await;
            assert!(buffers < 500, "{buffers} buffers for a sample of shard {shard}, analysed: {analysed}");
        }
    }
}

#[tokio::test]
async fn a_page_of_dead_letters_is_read_from_an_index_for_every_filter() {
    let Busy { world, workspace, definition } = busy().await;
    let none = None::<uuid::Uuid>;
    let before = Some(uuid::Uuid::from_u128(u128::MAX / 2));
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE").await.expect("statistics");
        }
        for (of, by) in [
            (none, none),
            (Some(workspace.0), none),
            (none, Some(definition.0)),
            (Some(workspace.0), Some(definition.0)),
        ] {
            for after in [none, before] {
                let buffers = touched(&world, sql!("execution_queue/dead_letters"), &[&of, &by, &after, &20i64]).await;
                assert!(buffers < 250, "{buffers} buffers for {of:?}, {by:?}, {after:?}, analysed: {analysed}");
            }
        }
    }
}

#[tokio::test]
async fn a_backlog_limit_costs_an_enqueue_no_count_whether_there_is_room_or_not() {
    let Busy { world, workspace, definition } = busy().await;
    let sql = "SELECT outcome FROM forebay.enqueue_many(ARRAY[gen_random_uuid()], ARRAY[$1::uuid], ARRAY[$2::uuid],
        ARRAY[NULL::jsonb], ARRAY[3::smallint], ARRAY[NULL::timestamptz], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[NULL::bytea],
        ARRAY[NULL::jsonb], ARRAY[NULL::text], ARRAY[NULL::uuid], ARRAY[NULL::uuid], ARRAY['test'], 1, 60000, $3::int, true)";
    let waiting = 3 * MANY;
    for (limit, outcome) in [(waiting * 2, "accepted"), (waiting / 2, "backlog_full")] {
        let result: String = world.get(sql, &[&workspace.0, &definition.0, &limit]).await;
        assert_eq!(result, outcome, "this call counts");
        world
            .run_sql(
                "UPDATE backlog SET counted_at = counted_at + interval '30 seconds' WHERE workspace_id = $1",
                &[&workspace.0],
            )
            .await;
        let buffers = touched(&world, sql, &[&workspace.0, &definition.0, &limit]).await;
        assert!(buffers < 200, "{buffers} buffers under a limit of {limit}");
    }
}

/// Many jobs of no workspace, and five of one's own.
async fn jobs(world: &World, workspace: WorkspaceId) {
    let fill = "ALTER TABLE workflow_queue_projection DISABLE TRIGGER USER;
        INSERT INTO workflow_queue_projection (id, event_id, event_type, event_data, stream_id, stream_type, created_at)
        SELECT gen_random_uuid(), gen_random_uuid(), 'x', '{}', gen_random_uuid(), 's', now() - n * interval '1 s'
          FROM generate_series(1, 40000) n;
        INSERT INTO workflow_queue_job (id, workspace_id, version, pending_since)
        SELECT p.id, NULL, 1, p.created_at FROM workflow_queue_projection p;
        ALTER TABLE workflow_queue_projection ENABLE TRIGGER USER;
        ALTER TABLE workflow_queue_projection SET (autovacuum_enabled = off);
        ALTER TABLE workflow_queue_job SET (autovacuum_enabled = off)";
    world.client.batch_execute(fill).await.expect("jobs");
    let own = "UPDATE workflow_queue_job SET workspace_id = $1
        WHERE id IN (SELECT id FROM workflow_queue_projection ORDER BY created_at OFFSET 20000 LIMIT 5)";
    world.run_sql(own, &[&workspace.0]).await;
    // The settings of every connection of the store.
    world
        .client
        .batch_execute("SET enable_seqscan = off; SET random_page_cost = 1.1; SET jit = off")
        .await
        .expect("settings");
}

#[tokio::test]
async fn a_workspace_that_reads_its_jobs_touches_none_of_the_others() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    jobs(&world, workspace).await;
    let (of, none, at) = (Some(workspace.0), None::<uuid::Uuid>, None::<jiff::Timestamp>);
    let (anything, last) = (None::<&str>, uuid::Uuid::max());
    // With statistics, as any table of this size has: they decide which end to start at, since a workspace may also
    // have nearly all jobs.
    world.client.batch_execute("ANALYZE").await.expect("statistics");
    for mode in ["force_custom_plan", "force_generic_plan"] {
        world.client.batch_execute(&format!("SET plan_cache_mode = {mode}")).await.expect("a mode");
        for count in [false, true] {
            let ask = sql!("workflow_queue_projection/select");
            let buffers = touched(&world, ask, &[&of, &1_000_i64, &0_i64, &count]).await;
            assert!(buffers < 100, "{buffers} buffers to ask, counted: {count}, {mode}");
        }
        let set = sql!("workflow_queue_projection/update");
        let buffers = touched(&world, set, &[&of, &json!({ "status": "pending" }), &1_000_i64, &true]).await;
        assert!(buffers < 500, "{buffers} buffers to change five, {mode}");
        let list = sql!("workflow_queue_projection/list_of");
        let buffers = touched(&world, list, &[&of, &anything, &anything, &none, &at, &last, &50_i64]).await;
        assert!(buffers < 100, "{buffers} buffers to list, {mode}");
    }
}
