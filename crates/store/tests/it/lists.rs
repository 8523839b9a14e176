//! Lists: the pages of any filter are the whole of it, in order, and no page reads more than it shows.

use kernel::access::Scopes;
use kernel::execution::Status;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use serde_json::Value;
use store::access::key::{NewKey, Secret};
use store::activity;
use store::execution::list::{Filter, Place};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::support::{Limits, World, start};

/// The text of a statement of the store.
macro_rules! sql {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql"))
    };
}

/// Executions of a history, two of each time, one in a thousand failed, every second one a minute older.
const HISTORY: &str = "
    INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics,
        idempotency_key, fingerprint, completed_at, created_at, deadline_at)
    SELECT gen_random_uuid(), $1, $2, gen_random_uuid(), CASE WHEN n % 1000 = 7 THEN 'FAILED' ELSE 'COMPLETED' END, 1,
           CASE WHEN n % 100 = 0 THEN 'order-' || n END, CASE WHEN n % 100 = 0 THEN 'x'::bytea END,
           now(), now() - n / 2 * interval '1 minute', now()
      FROM generate_series(1, $3::int) n";

async fn history(world: &World, workspace: WorkspaceId, definition: DefinitionId, count: i32) {
    world.run_sql(HISTORY, &[&workspace.0, &definition.0, &count]).await;
}

/// Every page of a filter, one after another.
async fn all_pages(world: &World, filter: &Filter) -> Vec<ExecutionId> {
    let (mut filter, mut found) = (filter.clone(), Vec::new());
    loop {
        let page = world.store.executions(&filter).await.expect("a page");
        found.extend(page.iter().map(|item| item.id));
        match page.last() {
            Some(last) => filter.after = Some(Place { at: last.created_at, id: last.id.0 }),
            None => return found,
        }
    }
}

/// What a condition selects, in the order of lists.
async fn selected(world: &World, condition: &str) -> Vec<ExecutionId> {
    let sql = format!("SELECT id FROM workflow_execution WHERE {condition} ORDER BY created_at DESC, id DESC");
    let rows = world.client.query(&sql, &[]).await.expect("ids");
    rows.iter().map(|row| ExecutionId(row.get(0))).collect()
}

#[tokio::test]
async fn the_pages_of_any_filter_are_the_whole_of_it_in_order() {
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
    let base = Filter { limit: 7, ..Filter::default() };
    let of_one = Filter { workspace: Some(one), ..base.clone() };
    let of_a = Filter { definitions: Some(vec![a]), ..base.clone() };
    let table = [
        (base.clone(), "true".to_owned()),
        (of_one.clone(), format!("workspace_id = '{one}'")),
        (of_a.clone(), format!("workflow_definition_id = '{a}'")),
        (Filter { workspace: Some(one), ..of_a.clone() }, format!("workflow_definition_id = '{a}'")),
        (Filter { workspace: Some(other), ..of_a.clone() }, "false".to_owned()),
        (Filter { definitions: Some(vec![a, c]), ..base.clone() }, format!("workflow_definition_id IN ('{a}', '{c}')")),
        (Filter { definitions: Some(Vec::new()), ..base.clone() }, "false".to_owned()),
        (Filter { statuses: vec![Status::Failed], ..base.clone() }, "status = 'FAILED'".to_owned()),
        (
            Filter { statuses: vec![Status::Failed, Status::Pending], ..of_one.clone() },
            format!("status IN ('FAILED', 'PENDING') AND workspace_id = '{one}'"),
        ),
        (
            Filter { until: Some(ago(5)), ..of_one.clone() },
            format!("workspace_id = '{one}' AND created_at < '{}'", ago(5)),
        ),
        (Filter { from: Some(ago(5)), ..base.clone() }, format!("created_at >= '{}'", ago(5))),
        (
            Filter { from: Some(ago(9)), until: Some(ago(3)), ..of_a },
            format!("workflow_definition_id = '{a}' AND created_at >= '{}' AND created_at < '{}'", ago(9), ago(3)),
        ),
    ];
    for (filter, condition) in table {
        assert_eq!(all_pages(&world, &filter).await, selected(&world, &condition).await, "{condition}");
    }
    let ids = selected(&world, &format!("workspace_id = '{one}'")).await;
    let some = Filter { ids: Some(vec![ids[9], ids[2], ExecutionId(Uuid::nil())]), ..of_one.clone() };
    assert_eq!(all_pages(&world, &some).await, [ids[2], ids[9]]);
    let theirs = Filter { workspace: Some(other), ..some };
    assert_eq!(all_pages(&world, &theirs).await, []);
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
    assert_eq!(named(workspace, "%").await + named(stranger, &name).await, 0, "no pattern, and nobody else's");
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
async fn the_audit_log_is_read_by_subject_actor_and_time_and_never_past_the_workspace() {
    let world = World::new().await;
    let (one, other) = (world.workspace("PRO").await, world.workspace("PRO").await);
    let subject = store::new_id();
    let fill = "INSERT INTO activity (workspace_id, actor, action, subject_type, subject_id, at)
        SELECT $1, CASE WHEN n = 1 THEN 'rare' ELSE 'often' END, 'test', 'test',
               CASE WHEN n % 1000 = 0 THEN $2 ELSE gen_random_uuid() END, now() - n * interval '1 second'
          FROM generate_series(1, 5000) n";
    world.run_sql(fill, &[&one.0, &subject]).await;
    world.run_sql("UPDATE activity SET at = now() - interval '2 hours' WHERE actor = 'rare'", &[]).await;
    let all = async |filter: activity::Filter| {
        let (mut filter, mut found, mut pages) = (filter, 0, 0);
        loop {
            let (page, next) = world.store.activity(&filter).await.expect("a page");
            (found, pages) = (found + page.len(), pages + 1);
            assert!(page.len() <= 100);
            match next {
                Some(_) => filter.after = next,
                None => return (found, pages),
            }
        }
    };
    let base = activity::Filter { limit: 100, ..activity::Filter::default() };
    let of_one = activity::Filter { workspace: Some(one), ..base.clone() };
    let now: jiff::Timestamp = world.get("SELECT now()", &[]).await;
    let table = [
        ("workspace", of_one.clone(), 5_001),
        ("all", base.clone(), 5_002),
        ("nobody else's", activity::Filter { workspace: Some(other), ..base.clone() }, 1),
        ("subject", activity::Filter { subject: Some(subject), ..of_one.clone() }, 5),
        ("subject of another", activity::Filter { subject: Some(subject), workspace: Some(other), ..base.clone() }, 0),
        ("rare actor", activity::Filter { actor: Some("rare".to_owned()), ..of_one.clone() }, 1),
        ("often", activity::Filter { actor: Some("often".to_owned()), ..of_one.clone() }, 4_999),
        (
            "time",
            activity::Filter {
                from: Some(now - jiff::SignedDuration::from_secs(3_000)),
                until: Some(now - jiff::SignedDuration::from_secs(1_000)),
                ..of_one
            },
            2_000,
        ),
    ];
    for (what, filter, expected) in table {
        let (found, pages) = all(filter).await;
        assert!((expected..=expected + 2).contains(&found) && found - expected <= 2, "{what}: {found}");
        assert!(pages <= expected / 100 + 4, "{what}: {pages} pages");
    }
}

#[tokio::test]
async fn capacity_counts_what_waits_by_reason_and_no_further_than_a_thousand() {
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

/// The buffers that a call touched, and the tables it read from end to end; inside a function only the
/// buffers tell.
async fn plan(world: &World, sql: &str, params: &[&(dyn ToSql + Sync)]) -> (i64, Vec<String>) {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}");
    let row = world.client.query_one(&explain, params).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let plan: Value = row.get(0);
    let of = |what: &str| plan[0]["Plan"][what].as_i64().expect("a number of buffers");
    let mut scans = Vec::new();
    full_scans(&plan[0]["Plan"], &mut scans);
    (of("Shared Hit Blocks") + of("Shared Read Blocks"), scans)
}

/// Every large table that a plan reads from end to end.
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
    let queue = "INSERT INTO execution_queue (id, execution_id, workspace_id, workflow_definition_id, rank, stage, status, concurrency_key, last_error)
        SELECT i.id, i.id, $1, $2, n, s.stage::smallint, CASE WHEN s.stage = 9 THEN 'FAILED' ELSE 'PENDING' END,
               CASE WHEN s.stage = 2 THEN n::text END, 'x'
          FROM generate_series(1, 4000) n CROSS JOIN unnest(ARRAY[0, 1, 2, 3, 9]) s(stage)
          CROSS JOIN LATERAL (SELECT gen_random_uuid() AS id, n AS m, s.stage AS o) i";
    world.run_sql(queue, &[&flood.0, &theirs.0]).await;
    (world, workspace, definition)
}

/// Notes a call that reads a large table whole, or touches too much.
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
                let id = if until.is_some() { Uuid::nil() } else { Uuid::max() };
                let what = format!("executions {workspace:?} {definitions:?} {statuses:?} {from:?} {until:?}");
                let call = (what.as_str(), 2_400, sql!("workflow_execution/list"));
                judge(world, wrong, call, &[&workspace, &definitions, &statuses, &from, &until, &id, &limit, &ids])
                    .await;
            }
        }
        for (subject, actor) in [(None, None), (Some(Uuid::nil()), None), (None, Some("a7")), (None, Some("nobody"))] {
            let looked_at = if actor.is_some() { 2_000i64 } else { limit };
            let what = format!("activity {workspace:?} {subject:?} {actor:?} {from:?} {until:?}");
            let call = (what.as_str(), 2_400, sql!("activity/list"));
            let place = i64::MAX;
            judge(world, wrong, call, &[&workspace, &subject, &actor, &from, &until, &place, &looked_at, &limit]).await;
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
