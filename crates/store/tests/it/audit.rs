//! The audit log as it is read: rows of its own and the starts of executions, in one order.

use store::activity;
use uuid::Uuid;

use crate::lists::history;
use crate::support::{World, start};

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
    let all = async |filter: activity::ActivityFilter| {
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
    let base = activity::ActivityFilter { limit: 100, ..activity::ActivityFilter::default() };
    let of_one = activity::ActivityFilter { workspace: Some(one), ..base.clone() };
    let now: jiff::Timestamp = world.get("SELECT now()", &[]).await;
    let table = [
        ("workspace", of_one.clone(), 5_001),
        ("all", base.clone(), 5_002),
        ("nobody else's", activity::ActivityFilter { workspace: Some(other), ..base.clone() }, 1),
        ("subject", activity::ActivityFilter { subject: Some(subject), ..of_one.clone() }, 5),
        (
            "subject of another",
            activity::ActivityFilter { subject: Some(subject), workspace: Some(other), ..base.clone() },
            0,
        ),
        ("rare actor", activity::ActivityFilter { actor: Some("rare".to_owned()), ..of_one.clone() }, 1),
        ("often", activity::ActivityFilter { actor: Some("often".to_owned()), ..of_one.clone() }, 4_999),
        (
            "time",
            activity::ActivityFilter {
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
async fn starts_of_executions_are_entries_of_the_audit_log_in_their_place() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let (other, theirs) = world.tenant("PRO").await;
    history(&world, workspace, definition, 600).await;
    history(&world, other, theirs, 600).await;
    world
        .run_sql("UPDATE workflow_execution SET actor = CASE WHEN random() < 0.5 THEN 'ada' ELSE 'bob' END", &[])
        .await;
    let fill = "INSERT INTO activity (workspace_id, actor, action, subject_type, subject_id, at)
        SELECT $1, 'ada', 'test', 'test', gen_random_uuid(), now() - n * interval '47 seconds' FROM generate_series(1, 300) n";
    world.run_sql(fill, &[&workspace.0]).await;
    let started = world.accept(&[start(workspace, definition)]).await[0];
    let base = activity::ActivityFilter { limit: 70, ..activity::ActivityFilter::default() };
    let of_one = activity::ActivityFilter { workspace: Some(workspace), ..base.clone() };
    let by_ada = activity::ActivityFilter { actor: Some("ada".to_owned()), ..of_one.clone() };
    let about = activity::ActivityFilter { subject: Some(started.0), ..base.clone() };
    for (filter, condition) in [
        (base, "true".to_owned()),
        (of_one, format!("workspace_id = '{workspace}'")),
        (by_ada, format!("workspace_id = '{workspace}' AND actor = 'ada'")),
        (about, format!("subject_id = '{started}' AND actor = 'test' AND action = 'execution.start'")),
    ] {
        let (mut filter, mut found) = (filter, Vec::new());
        loop {
            let (page, next) = world.store.activity(&filter).await.expect("a page");
            found.extend(page.into_iter().map(|entry| (entry.at, entry.subject)));
            filter.after = next;
            if next.is_none() {
                break;
            }
        }
        assert!(found.is_sorted_by_key(|(at, _)| std::cmp::Reverse(*at)), "{condition}");
        let sql = format!("SELECT at, subject_id FROM audit WHERE {condition}");
        let rows = world.client.query(&sql, &[]).await.expect("entries");
        let mut expected: Vec<(jiff::Timestamp, Uuid)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{condition}");
    }
}
