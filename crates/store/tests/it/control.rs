//! Pausing and resuming happen once, however often they are requested. They are audited in the same commit, and the
//! claim obeys them.

use kernel::ids::{DefinitionId, WorkspaceId};
use store::Error;
use store::queue::claim::BlockingLimit;

use crate::support::{Limits, World, new_version};

#[tokio::test]
async fn a_paused_workspace_starts_nothing_and_a_resumed_one_goes_on() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 3).await;
    for changed in [true, false] {
        assert_eq!(world.store.pause_workspace(workspace, true, "me").await.expect("paused"), changed);
    }
    assert_eq!(world.run(workspace, 5).await.len(), 0);
    assert_eq!(world.store.sweep(&[workspace.shard()]).await.expect("a sweep"), []);
    for changed in [true, false] {
        assert_eq!(world.store.pause_workspace(workspace, false, "me").await.expect("resumed"), changed);
    }
    assert_eq!(world.run(workspace, 5).await.len(), 3);
    for action in ["workspace.pause", "workspace.resume"] {
        let noted = format!("activity WHERE action = '{action}' AND actor = 'me' AND subject_id = '{workspace}'");
        assert_eq!(world.count(&noted).await, 1, "{action} once, however often it is requested");
    }
}

#[tokio::test]
async fn resuming_a_paused_definition_unblocks_its_items() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    world.accept_many(workspace, definition, 2).await;
    for changed in [true, false] {
        let outcome = world.store.pause_definition(workspace, definition, true, "me").await;
        assert_eq!(outcome.expect("paused"), changed);
    }
    world.accept_many(workspace, definition, 2).await;
    assert_eq!(world.run(workspace, 5).await.len(), 0);
    world.store.block_definition(workspace, definition).await.expect("moved");
    assert_eq!(world.stages(workspace).await, "definition 4");
    for changed in [true, false] {
        let outcome = world.store.pause_definition(workspace, definition, false, "me").await;
        assert_eq!(outcome.expect("resumed"), changed);
    }
    let limit = BlockingLimit { workspace, definition, key: None };
    assert_eq!(world.store.unblock(&[limit]).await.expect("opened"), [workspace]);
    assert_eq!(world.run(workspace, 5).await.len(), 4);
    assert_eq!(world.count("activity WHERE action IN ('definition.pause', 'definition.resume')").await, 2);
}

#[tokio::test]
async fn a_draft_is_neither_paused_nor_resumed() {
    let world = World::new().await;
    let workspace = world.workspace("FREE").await;
    let version = new_version(Limits::default());
    let (draft, _) = world.store.create_definition(workspace, "draft", &version, "test").await.expect("a draft");
    for paused in [true, false] {
        let outcome = world.store.pause_definition(workspace, draft, paused, "test").await;
        assert!(matches!(outcome, Err(Error::Conflict(_))), "{outcome:?}");
    }
    assert_eq!(
        world.store.definition(store::definition::DefinitionRef::Id(draft), None).await.expect("it").status,
        "DRAFT"
    );
}

#[tokio::test]
async fn what_is_missing_or_of_another_workspace_is_not_found_and_not_audited() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    let (stranger, _) = world.tenant("FREE").await;
    let nobody = WorkspaceId(store::new_id());
    let before = world.count("activity").await;
    let outcome = [
        world.store.pause_workspace(nobody, true, "test").await.map(drop),
        world.store.delete_workspace(nobody, "test").await,
        world.store.pause_definition(stranger, definition, true, "test").await.map(drop),
        world.store.delete_definition(stranger, definition, "test").await,
        world.store.delete_definition(workspace, DefinitionId(store::new_id()), "test").await,
    ];
    assert!(outcome.iter().all(|outcome| matches!(outcome, Err(Error::NotFound))), "{outcome:?}");
    assert_eq!(world.count("activity").await, before);
    assert_eq!(world.count("workflow_definition WHERE status = 'PAUSED' OR deleted_at IS NOT NULL").await, 0);
}

#[tokio::test]
async fn a_change_and_its_audit_row_are_one_commit() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    let refuse = "ALTER TABLE activity ADD CHECK (action !~ 'pause|delete') NOT VALID";
    world.client.batch_execute(refuse).await.expect("a check");
    assert!(world.store.pause_workspace(workspace, true, "test").await.is_err());
    assert!(world.store.pause_definition(workspace, definition, true, "test").await.is_err());
    assert!(world.store.delete_definition(workspace, definition, "test").await.is_err());
    assert!(world.store.delete_workspace(workspace, "test").await.is_err());
    assert_eq!(world.count("workspace WHERE paused OR deleted_at IS NOT NULL").await, 0);
    assert_eq!(world.count("workflow_definition WHERE status = 'PAUSED' OR deleted_at IS NOT NULL").await, 0);
}
