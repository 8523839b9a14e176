//! For every filter, the pages of a list together are the whole list in order. No page reads more rows than it returns.

use kernel::access::Scopes;
use kernel::execution::Status;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use serde_json::Value;
use store::access::key::{NewKey, Secret};
use store::execution::list::{ExecutionFilter, ExecutionSummary};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::support::{Limits, World, start};

/// The text of a statement of the store.
macro_rules! sql {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql"))
    };
}

/// A history of executions, two per time, one in a thousand failed, every second one a minute older.
const HISTORY: &str = "
    WITH made AS (
        INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics,
            idempotency_key, fingerprint, completed_at, created_at, deadline_at)
        SELECT overlay(gen_random_uuid()::text PLACING substr(forebay_r1.id_at(at.time)::text, 1, 13) FROM 1)::uuid,
               $1, $2, gen_random_uuid(), CASE WHEN n % $4 = 7 THEN 'FAILED' ELSE 'COMPLETED' END, 1,
               CASE WHEN n % 100 = 0 AND $4 = 1000 THEN 'order-' || n END,
               CASE WHEN n % 100 = 0 AND $4 = 1000 THEN 'x'::bytea END, now(), at.time, now()
          FROM generate_series(1, $3::int) n
         CROSS JOIN LATERAL (SELECT now() - n / 2 * interval '1 minute' AS time) at
        RETURNING workspace_id, status, id)
    INSERT INTO execution_outcome (workspace_id, status, execution_id)
    SELECT workspace_id, status, id FROM made WHERE status <> 'COMPLETED'";

pub(crate) async fn history(world: &World, workspace: WorkspaceId, definition: DefinitionId, count: i32) {
    world.run_sql(HISTORY, &[&workspace.0, &definition.0, &count, &1_000]).await;
}

/// Every page of a filter, one after another.
async fn all_pages(world: &World, filter: &ExecutionFilter) -> Vec<ExecutionId> {
    let (mut filter, mut found) = (filter.clone(), Vec::new());
    loop {
        let (page, next) = world.store.executions(&filter).await.expect("a page");
        assert!(i64::try_from(page.len()).is_ok_and(|len| len <= filter.limit), "{} executions", page.len());
        found.extend(page.iter().map(|item| item.id));
        match next {
            Some(_) => filter.after = next,
            None => return found,
        }
    }
}

/// What a condition selects, in the order of lists.
async fn selected(world: &World, condition: &str) -> Vec<ExecutionId> {
    let sql = format!("SELECT id FROM workflow_execution WHERE {condition} ORDER BY id DESC");
    let rows = world.client.query(&sql, &[]).await.expect("ids");
    rows.iter().map(|row| ExecutionId(row.get(0))).collect()
}

#[tokio::test]
async fn the_pages_of_any_filter_are_the_whole_list_in_order() {
    let world = World::new().await;
    let (one, other) = (world.workspace("PRO").await, world.workspace("PRO").await);
    let (a, b) = (world.definition(one, Limits::default()).await, world.definition(one, Limits::default()).await);
    let c = world.definition(other, Limits::default()).await;
    for (workspace, definition, count) in [(one, a, 30), (one, b, 25), (other, c, 20)] {
        history(&world, workspace, definition, count).await;
        world.accept(&[start(workspace, definition)]).await;
    }
    let now: jiff::Timestamp = world.get("SELECT now()", &[]).await;
    let ago = |minutes: i64| now - jiff::SignedDuration::from_mins(minutes);
    let base = ExecutionFilter { limit: 7, ..ExecutionFilter::default() };
    let of_one = ExecutionFilter { workspace: Some(one), ..base.clone() };
    let of_a = ExecutionFilter { definitions: Some(vec![a]), ..base.clone() };
    let table = [
        (base.clone(), "true".to_owned()),
        (of_one.clone(), format!("workspace_id = '{one}'")),
        (of_a.clone(), format!("workflow_definition_id = '{a}'")),
        (ExecutionFilter { workspace: Some(one), ..of_a.clone() }, format!("workflow_definition_id = '{a}'")),
        (ExecutionFilter { workspace: Some(other), ..of_a.clone() }, "false".to_owned()),
        (
            ExecutionFilter { definitions: Some(vec![a, c]), ..base.clone() },
            format!("workflow_definition_id IN ('{a}', '{c}')"),
        ),
        (ExecutionFilter { definitions: Some(Vec::new()), ..base.clone() }, "false".to_owned()),
        (ExecutionFilter { statuses: vec![Status::Failed], ..base.clone() }, "status = 'FAILED'".to_owned()),
        (
            ExecutionFilter { statuses: vec![Status::Failed, Status::Pending], ..of_one.clone() },
            format!("status IN ('FAILED', 'PENDING') AND workspace_id = '{one}'"),
        ),
        (
            ExecutionFilter { until: Some(ago(5)), ..of_one.clone() },
            format!("workspace_id = '{one}' AND created_at < '{}'", ago(5)),
        ),
        (ExecutionFilter { from: Some(ago(5)), ..base.clone() }, format!("created_at >= '{}'", ago(5))),
        (
            ExecutionFilter { from: Some(ago(9)), until: Some(ago(3)), ..of_a },
            format!("workflow_definition_id = '{a}' AND created_at >= '{}' AND created_at < '{}'", ago(9), ago(3)),
        ),
    ];
    for (filter, condition) in table {
        assert_eq!(all_pages(&world, &filter).await, selected(&world, &condition).await, "{condition}");
    }
    let ids = selected(&world, &format!("workspace_id = '{one}'")).await;
    let some = ExecutionFilter { ids: Some(vec![ids[9], ids[2], ExecutionId(Uuid::nil())]), ..of_one.clone() };
    assert_eq!(all_pages(&world, &some).await, [ids[2], ids[9]]);
    let theirs = ExecutionFilter { workspace: Some(other), ..some };
    assert_eq!(all_pages(&world, &theirs).await, []);
}

#[tokio::test]
async fn a_page_reads_at_most_two_thousand_executions_and_says_where_it_stopped() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let rare = world.definition(workspace, Limits::default()).await;
    // One failed, then 4,999 that did not; and of another definition 4,000 in the same time.
    history(&world, workspace, rare, 4_000).await;
    world.run_sql(HISTORY, &[&workspace.0, &definition.0, &5_000, &5_000]).await;
    let base = ExecutionFilter { workspace: Some(workspace), limit: 50, ..ExecutionFilter::default() };
    let completed_or = |status| ExecutionFilter { statuses: vec![Status::Completed, status], ..base.clone() };
    let failed = ExecutionFilter { statuses: vec![Status::Failed], ..base.clone() };
    let of_rare = ExecutionFilter { definitions: Some(vec![rare]), ..failed.clone() };
    for (filter, condition) in [
        (completed_or(Status::Running), "status = 'COMPLETED'".to_owned()),
        (failed, "status = 'FAILED'".to_owned()),
        (of_rare, format!("status = 'FAILED' AND workflow_definition_id = '{rare}'")),
    ] {
        assert_eq!(all_pages(&world, &filter).await, selected(&world, &condition).await, "{condition}");
    }
    world.run_sql("UPDATE workflow_execution SET status = 'CANCELED' WHERE status = 'COMPLETED'", &[]).await;
    let (page, next) = world.store.executions(&completed_or(Status::Running)).await.expect("a page");
    let read = selected(&world, "true").await;
    assert_eq!((page.len(), next), (0, Some(read[1_999])), "the page is empty, and the next one starts there");
}

#[tokio::test]
async fn what_is_open_and_what_failed_is_found_behind_any_number_of_completed_executions() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let opened = world.accept_many(workspace, definition, 4).await;
    let running = world.run(workspace, 2).await;
    world.finish(running[0].execution, Status::Failed).await;
    let mut open: Vec<_> = opened.into_iter().filter(|id| *id != running[0].execution).collect();
    open.sort_by(|one, other| other.cmp(one));
    let newer = "INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics, completed_at,
            deadline_at)
        SELECT forebay.new_id(), $1, $2, gen_random_uuid(), 'COMPLETED', 1, now(), now() FROM generate_series(1, 5000)";
    world.run_sql(newer, &[&workspace.0, &definition.0]).await;
    for of in [Some(workspace), None] {
        for definitions in [Some(vec![definition]), None] {
            let base = ExecutionFilter { workspace: of, definitions, limit: 10, ..ExecutionFilter::default() };
            let of = |statuses: &[Status]| ExecutionFilter { statuses: statuses.to_vec(), ..base.clone() };
            let page = async |filter| world.store.executions(&filter).await.expect("a page");
            let ids = |page: Vec<ExecutionSummary>| page.into_iter().map(|item| item.id).collect::<Vec<_>>();
            let (found, next) = page(of(&[Status::Pending, Status::Running])).await;
            assert_eq!((ids(found), next), (open.clone(), None));
            let (found, next) = page(of(&[Status::Running])).await;
            assert_eq!((ids(found), next), (vec![running[1].execution], None));
            let (found, next) = page(of(&[Status::Failed, Status::TimedOut])).await;
            assert_eq!((ids(found), next), (vec![running[0].execution], None));
        }
    }
}

#[tokio::test]
async fn an_execution_is_found_by_the_start_of_its_id_or_by_its_idempotency_key() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let (stranger, _) = world.tenant("PRO").await;
    history(&world, workspace, definition, 200).await;
    let id: Uuid = world.get("SELECT id FROM workflow_execution WHERE idempotency_key = 'order-200'", &[]).await;
    let (never, whole) = ((Uuid::max(), Uuid::nil()), (id, id));
    for (of, ids, key, found) in [
        (workspace, never, "order-200", 1),
        (workspace, whole, "", 1),
        (workspace, whole, "order-100", 2),
        (workspace, never, "order-", 0),
        (stranger, whole, "order-200", 0),
    ] {
        let ids = world.store.search_executions(of, ids, key, 10).await.expect("an answer");
        assert_eq!(ids.len(), found, "{key:?}");
    }
    let named = async |of, name| world.store.search_definitions(of, name, 10).await.expect("an answer").len();
    let name: String = world.get("SELECT name FROM workflow_definition WHERE id = $1", &[&definition.0]).await;
    assert_eq!(named(workspace, &name[..2]).await, 1);
    assert_eq!(
        named(workspace, "%").await + named(stranger, &name).await,
        0,
        "the name is not a pattern, and other workspaces find nothing"
    );
}

#[tokio::test]
async fn definitions_versions_workspaces_and_keys_come_in_pages() {
    let world = World::new().await;
    let mut made = Vec::new();
    for n in 0..5 {
        let workspace = world.workspace("FREE").await;
        for _ in 0..3 {
            made.push((workspace, world.definition(workspace, Limits::default()).await));
        }
        let new =
            NewKey { workspace: Some(workspace), name: &format!("k{n}"), scopes: Scopes::all(), expires_at: None };
        world.store.create_key(&new, &Secret::generate().expect("a key"), "test").await.expect("a stored key");
    }
    for (of, expected) in [(None, 15), (Some(made[0].0), 3)] {
        let (mut found, mut place) = (Vec::new(), None);
        loop {
            let after = place.as_ref().map(|(id, name): &(WorkspaceId, String)| (*id, name.as_str()));
            let page = world.store.definitions(of, after, 2).await.expect("a page");
            let Some(last) = page.last() else { break };
            place = Some((last.workspace, last.name.clone()));
            found.extend(page.iter().map(|item| (item.workspace, item.name.clone())));
        }
        assert_eq!(found.len(), expected);
        assert!(found.is_sorted(), "{found:?}");
    }
    let (mut names, mut after) = (Vec::new(), String::new());
    while let Some(last) = world.store.workspaces(&after, 2).await.expect("a page").pop() {
        names.extend(world.store.workspaces(&after, 2).await.expect("a page").into_iter().map(|item| item.name));
        after = last.name;
    }
    assert_eq!(names.len(), 5);
    let (mut keys, mut after) = (Vec::new(), None);
    while let Some(last) = world.store.keys(None, after, 2).await.expect("a page").last() {
        keys.extend(world.store.keys(None, after, 2).await.expect("a page").into_iter().map(|item| item.name));
        after = Some(last.id);
    }
    assert_eq!(keys, ["k0", "k1", "k2", "k3", "k4"]);
    assert_eq!(world.store.keys(Some(made[0].0), None, 10).await.expect("a page").len(), 1);
    let versions = world.store.versions(made[0].1, None, 10).await.expect("versions");
    assert_eq!(versions.iter().map(|version| (version.number, version.published)).collect::<Vec<_>>(), [(1, true)]);
    assert!(world.store.versions(made[0].1, Some(1), 10).await.expect("versions").is_empty());
}

#[tokio::test]
async fn capacity_counts_the_backlog_by_reason_up_to_a_thousand() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let before = world.store.capacity(workspace).await.expect("an answer");
    assert_eq!((before.limit, before.running, before.ready, before.oldest_s), (5, 0, 0, None));
    world.accept_many(workspace, definition, 1_500).await;
    world.run(workspace, 3).await;
    let put = "UPDATE execution_queue SET stage = $1::smallint, available_at = CASE WHEN $1 = 1 THEN now() + interval '1 day' ELSE available_at END,
            concurrency_key = CASE WHEN $1 = 2 THEN 'k' END, status = CASE WHEN $1 = 9 THEN 'FAILED' ELSE status END, last_error = 'x'
        WHERE id IN (SELECT id FROM execution_queue WHERE stage = 0 ORDER BY rank DESC, id DESC LIMIT $2)";
    for (stage, count) in [(1i16, 4i64), (2, 5), (3, 6), (9, 7)] {
        world.run_sql(put, &[&stage, &count]).await;
    }
    let age = "UPDATE execution_queue SET created_at = now() - interval '1 hour', available_at = now() - interval '1 hour' WHERE stage = 3";
    world.run_sql(age, &[]).await;
    let now = world.store.capacity(workspace).await.expect("an answer");
    assert_eq!((now.running, now.ready, now.delayed, now.waits_for_key), (3, 1_001, 4, 5));
    assert_eq!((now.waits_for_definition, now.failed), (6, 7));
    let oldest = now.oldest_s.expect("an age");
    assert!((3_600.0..3_700.0).contains(&oldest), "{oldest}");
    let nobody = world.store.capacity(WorkspaceId(store::new_id())).await;
    assert!(matches!(nobody, Err(store::Error::NotFound)));
}

/// The buffers that a call touched, and the tables it scanned; inside a function only the buffers are known.
async fn plan(world: &World, sql: &str, params: &[&(dyn ToSql + Sync)]) -> (i64, Vec<String>) {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}");
    let row = world.client.query_one(&explain, params).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let plan: Value = row.get(0);
    let of = |what: &str| plan[0]["Plan"][what].as_i64().expect("a number of buffers");
    let mut scans = Vec::new();
    full_scans(&plan[0]["Plan"], &mut scans);
    (of("Shared Hit Blocks") + of("Shared Read Blocks"), scans)
}

/// Every large table that a plan scans.
fn full_scans(plan: &Value, found: &mut Vec<String>) {
    let large = ["workflow_execution", "execution_queue", "activity", "workflow_definition", "api_key"];
    let table = plan["Relation Name"].as_str().unwrap_or_default();
    let ran = plan["Actual Loops"].as_i64() != Some(0);
    if plan["Node Type"] == "Seq Scan" && large.contains(&table) && ran {
        found.push(table.to_owned());
    }
    for below in plan["Plans"].as_array().into_iter().flatten() {
        full_scans(below, found);
    }
}

/// Two workspaces and definitions with a long history, and every other table large too.
async fn large() -> (World, WorkspaceId, DefinitionId) {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let (flood, theirs) = world.tenant("PRO").await;
    history(&world, workspace, definition, 20_000).await;
    history(&world, flood, theirs, 40_000).await;
    let fill = "INSERT INTO activity (workspace_id, actor, action, subject_type, subject_id)
        SELECT CASE WHEN n % 3 = 0 THEN $1::uuid ELSE $2 END, 'a' || n % 1000, 'test', 'test', gen_random_uuid() FROM generate_series(1, 40000) n";
    world.run_sql(fill, &[&workspace.0, &flood.0]).await;
    let definitions = "INSERT INTO workflow_definition (id, workspace_id, name)
        SELECT gen_random_uuid(), CASE WHEN n % 10 = 0 THEN $1::uuid ELSE $2 END, 'd' || n FROM generate_series(1, 5000) n";
    world.run_sql(definitions, &[&workspace.0, &flood.0]).await;
    let keys = "INSERT INTO api_key (id, workspace_id, name, hash, revoked_at)
        SELECT gen_random_uuid(), $1, 'k', int4send(n), CASE WHEN n % 100 <> 0 THEN now() END FROM generate_series(1, 10000) n";
    world.run_sql(keys, &[&workspace.0]).await;
    let queue = "INSERT INTO execution_queue (id, workspace_id, workflow_definition_id, rank, stage, status, concurrency_key, last_error)
        SELECT forebay.new_id(), $1, $2, n, stage::smallint, CASE WHEN stage = 9 THEN 'FAILED' ELSE 'PENDING' END,
               CASE WHEN stage = 2 THEN n::text END, 'x'
          FROM (SELECT n, stage FROM generate_series(1, 4000) n CROSS JOIN unnest(ARRAY[0, 1, 2, 3, 9]) stage
                 ORDER BY n, stage) items";
    world.run_sql(queue, &[&flood.0, &theirs.0]).await;
    let waiting = "INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics, deadline_at)
        SELECT id, workspace_id, workflow_definition_id, gen_random_uuid(), 'PENDING', 1, now() FROM execution_queue WHERE stage < 9";
    world.run_sql(waiting, &[]).await;
    (world, workspace, definition)
}

/// Collects a call that scans a large table, or touches too many buffers.
async fn judge(world: &World, wrong: &mut Vec<String>, call: (&str, i64, &str), params: &[&(dyn ToSql + Sync)]) {
    let (what, bound, sql) = call;
    let (buffers, scans) = plan(world, sql, params).await;
    if !scans.is_empty() || buffers >= bound {
        wrong.push(format!("{what}: {buffers} buffers, reads all of {scans:?}"));
    }
}

/// Every filter of the lists of executions and of the audit log.
async fn filtered(world: &World, workspace: WorkspaceId, definition: DefinitionId, wrong: &mut Vec<String>) {
    let at: jiff::Timestamp = world.get("SELECT now() - interval '50 hours'", &[]).await;
    let all: Vec<&str> = Status::ALL.into_iter().map(Status::name).collect();
    let (limit, none, ids) = (51i64, None::<jiff::Timestamp>, None::<Vec<Uuid>>);
    let times = [(none, none), (Some(at), none), (none, Some(at)), (Some(at), Some(at))];
    for (workspace, (from, until)) in
        [Some(workspace.0), None].into_iter().flat_map(|of| times.map(|times| (of, times)))
    {
        for definitions in [None, Some(vec![definition.0])] {
            for statuses in [&all[..], &["FAILED"], &["TIMED_OUT"], &["FAILED", "PENDING"]] {
                let what = format!("executions {workspace:?} {definitions:?} {statuses:?} {from:?} {until:?}");
                let call = (what.as_str(), 2_400, sql!("workflow_execution/list"));
                let (before, most) = (None::<Uuid>, 2_000i64);
                let params: [&(dyn ToSql + Sync); 9] =
                    [&workspace, &definitions, &statuses, &from, &until, &before, &limit, &ids, &most];
                judge(world, wrong, call, &params).await;
            }
        }
        for (subject, actor) in [(None, None), (Some(Uuid::nil()), None), (None, Some("a7")), (None, Some("nobody"))] {
            let looked_at = if actor.is_some() { 2_000i64 } else { limit };
            let what = format!("activity {workspace:?} {subject:?} {actor:?} {from:?} {until:?}");
            let call = (what.as_str(), 3_000, sql!("activity/list"));
            let (before, entry, execution) = (none, i64::MAX, Uuid::max());
            let params: [&(dyn ToSql + Sync); 10] =
                [&workspace, &subject, &actor, &from, &until, &before, &entry, &execution, &looked_at, &limit];
            judge(world, wrong, call, &params).await;
        }
    }
}

#[tokio::test]
async fn every_list_uses_an_index_whatever_the_filter() {
    let (world, workspace, definition) = large().await;
    let limit = 51i64;
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE").await.expect("statistics");
        }
        let mut wrong = Vec::new();
        filtered(&world, workspace, definition, &mut wrong).await;
        let (low, high) = (Uuid::from_u128(7 << 80), Uuid::from_u128(8 << 80));
        let call = ("search", 60, sql!("workflow_execution/search"));
        judge(&world, &mut wrong, call, &[&workspace.0, &low, &high, &"order-100", &limit]).await;
        let call = ("names", 300, sql!("workflow_definition/search"));
        judge(&world, &mut wrong, call, &[&workspace.0, &"d1", &limit]).await;
        let call = ("capacity", 5_000, sql!("workspace/capacity"));
        judge(&world, &mut wrong, call, &[&workspace.0, &1_001i64]).await;
        for of in [Some(workspace.0), None] {
            let (first, last) = of.map_or((Uuid::nil(), Uuid::max()), |id| (id, id));
            let call = ("definitions", 400, sql!("workflow_definition/list"));
            judge(&world, &mut wrong, call, &[&first, &last, &first, &"", &limit]).await;
            judge(&world, &mut wrong, ("keys", 200, sql!("api_key/list")), &[&of, &Uuid::nil(), &limit]).await;
        }
        assert!(wrong.is_empty(), "analysed: {analysed}, {wrong:#?}");
    }
}
