//! Stored secrets: there is one row per name, no version is set twice, and secrets are deleted with their workspace.

use kernel::ids::WorkspaceId;
use store::Error;
use store::access::secret::{MAX_SECRETS, Sealed};
use uuid::Uuid;

use crate::support::World;

fn sealed(workspace: WorkspaceId, name: &str, version: i32) -> Sealed {
    let (value, key) = (format!("value {version}").into_bytes(), format!("key {version}").into_bytes());
    Sealed { workspace, name: name.to_owned(), version, value, key, key_id: "old".to_owned(), hosts: None }
}

#[tokio::test]
async fn each_set_makes_the_next_version_and_audits_only_the_name() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    for version in 1..=3 {
        assert_eq!(world.store.next_secret_version(workspace, "API_KEY").await.expect("known"), version);
        let set = world.store.set_secret(&sealed(workspace, "API_KEY", version), "ann").await.expect("set");
        assert_eq!(set.expect("the next").version, version);
    }
    let found = world.store.sealed_secrets(workspace, &["API_KEY", "OTHER"]).await.expect("rows");
    assert_eq!((found.len(), found[0].value.as_slice()), (1, b"value 3".as_slice()), "only the newest");
    let listed = world.store.secrets(workspace, "", 10).await.expect("a list");
    assert_eq!((listed.len(), listed[0].version, listed[0].created_by.as_str()), (1, 3, "ann"));
    assert!(listed[0].created_at < listed[0].updated_at);
    assert_eq!(world.count("activity WHERE action = 'secret.set' AND detail->>'name' = 'API_KEY'").await, 3);
    world.store.delete_secret(workspace, "API_KEY", "ann").await.expect("deleted");
    assert!(matches!(world.store.delete_secret(workspace, "API_KEY", "ann").await, Err(Error::NotFound)));
    assert_eq!(world.count("activity WHERE action = 'secret.delete'").await, 1);
}

#[tokio::test]
async fn a_version_set_by_another_request_first_changes_nothing() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let set = async |version| {
        world.store.set_secret(&sealed(workspace, "A", version), "ann").await.expect("an answer").is_some()
    };
    assert!(set(1).await);
    assert!(!set(1).await, "the same version again");
    assert!(set(2).await);
    assert!(!set(4).await, "a version too far");
    assert_eq!(world.count("activity WHERE action = 'secret.set'").await, 2);
    // Concurrent sets: each version is set once.
    let store = &world.store;
    let racers = (0..8).map(|_| async move {
        let version = store.next_secret_version(workspace, "RACE").await.expect("known");
        store.set_secret(&sealed(workspace, "RACE", version), "ann").await.expect("an answer").is_some()
    });
    let won = futures_util::future::join_all(racers).await.into_iter().filter(|won| *won).count();
    let version: i32 = world.get("SELECT version FROM secret WHERE name = 'RACE'", &[]).await;
    assert_eq!(usize::try_from(version).expect("a version"), won);
}

#[tokio::test]
async fn secrets_per_workspace_are_bounded_and_deleted_with_it() {
    let world = World::new().await;
    let (workspace, other) = (world.workspace("PRO").await, world.workspace("PRO").await);
    for owner in [workspace, other] {
        world.store.set_secret(&sealed(owner, "A", 1), "ann").await.expect("an answer").expect("set");
    }
    world
        .run_sql(
            "INSERT INTO secret (workspace_id, name, version, value_sealed, key_sealed, key_id, created_by)
             SELECT $1, 'S' || n, 1, '', '', 'k', 'ann' FROM generate_series(2, $2::bigint) n",
            &[&workspace.0, &MAX_SECRETS],
        )
        .await;
    assert!(matches!(world.store.next_secret_version(workspace, "ONE_MORE").await, Err(Error::Conflict(_))));
    assert!(world.store.set_secret(&sealed(workspace, "ONE_MORE", 1), "ann").await.expect("an answer").is_none());
    assert_eq!(
        world.store.next_secret_version(workspace, "A").await.expect("known"),
        2,
        "an existing secret may change"
    );
    world.store.delete_workspace(workspace, "root").await.expect("deleted");
    assert_eq!(world.count("secret").await, 1, "the other workspace's stays");
    assert!(world.store.set_secret(&sealed(workspace, "A", 1), "ann").await.expect("an answer").is_none());
    for gone in [workspace, WorkspaceId(Uuid::nil())] {
        assert!(matches!(world.store.next_secret_version(gone, "A").await, Err(Error::NotFound)));
    }
}

#[tokio::test]
async fn a_data_key_is_replaced_only_under_the_version_it_was_read_at() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    for name in ["A", "B", "a"] {
        world.store.set_secret(&sealed(workspace, name, 1), "ann").await.expect("an answer").expect("set");
    }
    let nowhere = (WorkspaceId(Uuid::nil()), "");
    let mut found = Vec::new();
    let mut after = (nowhere.0, String::new());
    while let Some(one) = world.store.secrets_to_reencrypt("new", (after.0, &after.1), 1).await.expect("rows").pop() {
        after = (one.workspace, one.name.clone());
        found.push(one);
    }
    assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["A", "B", "a"], "one by one, all");
    world.store.set_secret(&sealed(workspace, "A", 2), "ann").await.expect("an answer").expect("set meanwhile");
    assert!(!world.store.reencrypt_secret(&found[0], b"resealed", "new").await.expect("an answer"));
    assert!(world.store.reencrypt_secret(&found[1], b"resealed", "new").await.expect("an answer"));
    assert!(!world.store.reencrypt_secret(&found[1], b"resealed", "new").await.expect("an answer"), "twice");
    let moved: bool =
        world.get("SELECT updated_at > created_at + interval '1 s' FROM secret WHERE name = 'B'", &[]).await;
    assert!(!moved, "it was not set again");
    let left = world.store.secrets_to_reencrypt("new", nowhere, 10).await.expect("rows");
    assert_eq!(left.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["A", "a"]);
}

#[tokio::test]
async fn a_name_is_like_that_of_a_variable() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let long = "A".repeat(129);
    for name in ["", "1A", "A-B", "A B", "Ä", "A\n", long.as_str()] {
        let set = world.store.set_secret(&sealed(workspace, name, 1), "ann").await;
        assert!(matches!(set, Err(Error::Refused { .. })), "{name:?}");
    }
}
