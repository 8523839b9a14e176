//! Dead letters are listed in pages, and dismissed once.

use kernel::execution::Status;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use store::Error;
use store::queue::dead_letter::DeadLetterFilter;

use crate::support::World;

async fn failed(world: &World, workspace: WorkspaceId, definition: DefinitionId, count: usize) -> Vec<ExecutionId> {
    let accepted = world.accept_many(workspace, definition, count).await;
    for execution in &accepted {
        world.finish(*execution, Status::Failed).await;
    }
    accepted
}

async fn listed(world: &World, which: DeadLetterFilter, limit: i64) -> Vec<ExecutionId> {
    let dead_letters = world.store.dead_letters(which, limit).await.expect("dead letters");
    dead_letters.iter().map(|dead_letter| dead_letter.item.execution()).collect()
}

#[tokio::test]
async fn dead_letters_are_listed_newest_first_by_workspace_and_by_definition() {
    let world = World::new().await;
    let (workspace, one) = world.tenant("PRO").await;
    let two = world.definition(workspace, Default::default()).await;
    let (other, theirs) = world.tenant("PRO").await;
    let mut all = failed(&world, workspace, one, 3).await;
    all.extend(failed(&world, workspace, two, 2).await);
    let foreign = failed(&world, other, theirs, 1).await;
    world.accept_many(workspace, one, 1).await;
    all.reverse();
    let of = |definition| DeadLetterFilter { workspace: Some(workspace), definition, before: None };
    assert_eq!(listed(&world, of(None), 10).await, all);
    assert_eq!(listed(&world, of(Some(two)), 10).await, all[..2]);
    assert_eq!(
        listed(&world, of(Some(theirs)), 10).await,
        [],
        "another workspace's definition has no dead letters here"
    );
    let everyone = listed(&world, DeadLetterFilter::default(), 10).await;
    assert_eq!((everyone.len(), everyone[0]), (6, foreign[0]));
    let page = listed(&world, of(None), 2).await;
    assert_eq!(page, all[..2]);
    let before = Some(page[1].queue_item());
    assert_eq!(listed(&world, DeadLetterFilter { before, ..of(None) }, 10).await, all[2..]);
    let dead_letter = world.store.dead_letters(of(None), 1).await.expect("dead letters").remove(0);
    assert_eq!(
        (dead_letter.execution_status, dead_letter.last_error.as_deref()),
        (Some(Status::Failed), Some("it broke"))
    );
    assert!(dead_letter.failed_at.is_some() && dead_letter.definition_name.is_some());
}

#[tokio::test]
async fn a_dead_letter_is_dismissed_once_and_its_execution_stays() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let execution = failed(&world, workspace, definition, 1).await[0];
    let (stranger, _) = world.tenant("PRO").await;
    let item = execution.queue_item();
    assert!(matches!(world.store.dismiss(item, stranger, "me").await, Err(Error::NotFound)));
    world.store.dismiss(item, workspace, "me").await.expect("dismissed");
    assert_eq!(world.state(execution).await, "FAILED, no item");
    assert!(matches!(world.store.dismiss(item, workspace, "me").await, Err(Error::NotFound)));
    assert_eq!(world.count("activity WHERE action = 'queue_item.dismiss' AND actor = 'me'").await, 1);
}

#[tokio::test]
async fn a_queued_or_running_item_cannot_be_dismissed() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let accepted = world.accept_many(workspace, definition, 2).await;
    world.run(workspace, 1).await;
    for execution in accepted {
        let outcome = world.store.dismiss(execution.queue_item(), workspace, "me").await;
        assert!(matches!(outcome, Err(Error::Conflict(_))), "{outcome:?}");
    }
    assert_eq!(world.stages(workspace).await, "ready 1, slot 1");
}
