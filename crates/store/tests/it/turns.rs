//! Which job starts next: bindings take turns, so jobs that cannot start do not delay the jobs of other bindings.

use kernel::ids::{DefinitionId, WorkspaceId};
use serde_json::json;
use store::definition::NewVersion;
use store::event::NewEvent;
use store::job::projector::JobStartOutcome;
use store::workspace::WorkspaceChange;

use crate::events::event;
use crate::jobs::{begins, our_jobs, start};
use crate::plans::touched;
use crate::support::{Limits, World, new_version};

/// Publishes a definition that binds a type.
async fn published(world: &World, workspace: WorkspaceId, id: DefinitionId, event_type: &str) {
    let graph = json!({ "nodes": [], "edges": [], "on": { "event": { "type": event_type } } });
    let version = NewVersion { graph, ..new_version(Limits::default()) };
    let stored = world.store.add_version(workspace, id, &version, "test").await.expect("a version");
    world.store.publish(workspace, id, stored.id, &version, "test").await.expect("published");
}

async fn append(world: &World, workspace: WorkspaceId, event_type: &str, count: usize) {
    let events: Vec<NewEvent> =
        (0..count).map(|_| NewEvent { workspace: Some(workspace), ..event(event_type) }).collect();
    world.store.append(&events).await.expect("an append");
}

async fn due(world: &World, limit: i32) -> Vec<WorkspaceId> {
    world.store.due_jobs(limit).await.expect("due jobs").into_iter().map(|due| due.workspace).collect()
}

#[tokio::test]
async fn jobs_of_a_deleted_binding_delay_no_other_and_are_released() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    published(&world, workspace, definition, "old.placed").await;
    append(&world, workspace, "old.placed", 5).await;
    published(&world, workspace, definition, "new.placed").await;
    append(&world, workspace, "new.placed", 5).await;
    assert_eq!(due(&world, 100).await.len(), 5, "those of the type it has now");
    world.store.delete_definition(workspace, definition, "test").await.expect("deleted");
    let quiet = our_jobs(&world, 1).await;
    assert_eq!(due(&world, 3).await, [quiet], "ten that nobody runs have been due for longer");

    for moved in [4, 4, 2, 0] {
        assert_eq!(world.store.release_unbound_jobs(4).await.expect("a pass"), moved);
    }
    assert_eq!(world.count("workflow_queue_job WHERE due_at IS NOT NULL").await, 1);
    assert_eq!(
        world.count("workflow_queue_projection WHERE status = 'pending'").await,
        11,
        "other workers may still claim them"
    );
    assert_eq!(due(&world, 3).await, [quiet]);
}

#[tokio::test]
async fn a_job_whose_binding_was_deleted_during_the_fold_is_released() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    published(&world, workspace, definition, "old.placed").await;
    let mut client = world.database.client().await;
    let slow = client.transaction().await.expect("a transaction");
    let insert =
        "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
                  VALUES ($1, gen_random_uuid(), 'order', 1, 'old.placed', '{}')";
    slow.execute(insert, &[&workspace.0]).await.expect("an event");
    world.store.delete_definition(workspace, definition, "test").await.expect("deleted");
    assert_eq!(world.store.release_unbound_jobs(10).await.expect("a pass"), 0);
    slow.commit().await.expect("committed after");
    assert_eq!(world.count("workflow_queue_job WHERE due_at IS NOT NULL").await, 1);
    assert_eq!(world.store.release_unbound_jobs(10).await.expect("a pass"), 1);
    assert_eq!(world.count("workflow_queue_job WHERE due_at IS NOT NULL").await, 0);
}

#[tokio::test]
async fn a_full_workspace_delays_only_its_own_jobs() {
    let world = World::new().await;
    let full = our_jobs(&world, 40).await;
    let change = WorkspaceChange { max_backlog: Some(Some(1)), ..WorkspaceChange::default() };
    world.store.change_workspace(full, &change, "test").await.expect("changed");
    let quiet = our_jobs(&world, 2).await;
    let first = due(&world, 4).await;
    assert_eq!(
        first.iter().filter(|workspace| **workspace == quiet).count(),
        2,
        "in turn, although all of the other are older"
    );

    let begins = begins(&world.store, start).await;
    let begun = world.store.begin_jobs(&begins, "host-1", None).await.expect("begun");
    let count = |what: fn(&JobStartOutcome) -> bool| begun.iter().filter(|begun| what(begun)).count();
    assert_eq!(
        (count(|it| matches!(it, JobStartOutcome::Started(_))), count(|it| matches!(it, JobStartOutcome::BacklogFull))),
        (3, 39),
        "one had room"
    );
    append(&world, quiet, "ours.placed", 1).await;
    assert_eq!(due(&world, 100).await, [quiet], "none of the 39 is read");
    assert_eq!(world.count("event_binding WHERE full_until > now()").await, 1);

    world.run_sql("UPDATE event_binding SET full_until = now()", &[]).await;
    assert_eq!(due(&world, 100).await.len(), 40, "they are due again");
}

#[tokio::test]
async fn the_cost_of_finding_due_jobs_does_not_depend_on_the_backlog() {
    let world = World::new().await;
    our_jobs(&world, 1).await;
    our_jobs(&world, 1).await;
    world.client.batch_execute("ALTER TABLE workflow_queue_job SET (autovacuum_enabled = off)").await.expect("none");
    // Of a binding whose jobs are not due yet, of a deleted one, and of none.
    let crowd = "INSERT INTO workflow_queue_job (id, binding_id, version, pending_since, due_at)
        SELECT gen_random_uuid(), b.id, 1, now(), b.at
          FROM generate_series(1, 20000) n
         CROSS JOIN (SELECT min(binding_id::text)::uuid, now() + interval '1 day' FROM workflow_queue_job
                     UNION ALL SELECT '00000000-0000-0000-0000-000000000001', now() - interval '1 day'
                     UNION ALL SELECT NULL, NULL) b(id, at)";
    world.run_sql(crowd, &[]).await;
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE").await.expect("statistics");
        }
        for (what, sql, bound) in [
            ("a look", "SELECT * FROM forebay_r1.due_jobs(100)", 100),
            ("release unbound jobs", "SELECT forebay_r1.release_unbound_jobs(10)", 400),
        ] {
            let buffers = touched(&world, sql, &[]).await;
            assert!(buffers < bound, "{what}: {buffers} buffers, analysed: {analysed}");
        }
    }
    assert_eq!(due(&world, 100).await.len(), 2);
}
