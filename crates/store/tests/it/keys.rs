//! API keys: hashed at rest, found by their secret, and gone when revoked.

use store::Error;
use store::key::{Key, Malformed, Secret};

use crate::support::World;

#[tokio::test]
async fn a_key_is_found_by_its_secret_and_only_its_hash_is_stored() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    for owner in [Some(workspace), None] {
        let secret = Secret::generate().expect("a key");
        let id = world.store.create_key(owner, "ci", &secret, "test").await.expect("a stored key");
        let found = world.store.find_key(&secret).await.expect("found");
        assert_eq!(found, Key { id, workspace: owner });
        let stored: Vec<u8> = world.get("SELECT hash FROM api_key WHERE id = $1", &[&id.0]).await;
        assert_eq!(stored, secret.hash());
        for table in ["api_key", "activity"] {
            let row = format!("{table} AS t WHERE t::text LIKE '%' || $${}$$ || '%'", &secret.expose()[4..]);
            assert_eq!(world.count(&row).await, 0, "{table} holds the key in clear");
        }
    }
    assert_eq!(world.count("activity WHERE action = 'key.create'").await, 2);
    assert!(world.store.has_root_key().await.expect("an answer"));
}

#[tokio::test]
async fn a_key_that_was_never_made_or_was_revoked_is_not_found() {
    let world = World::new().await;
    let secret = Secret::generate().expect("a key");
    assert!(matches!(world.store.find_key(&secret).await, Err(Error::NotFound)));
    world.store.create_key(None, "root", &secret, "test").await.expect("a stored key");
    world.run_sql("UPDATE api_key SET revoked_at = now()", &[]).await;
    assert!(matches!(world.store.find_key(&secret).await, Err(Error::NotFound)));
    assert!(!world.store.has_root_key().await.expect("an answer"));
}

#[tokio::test]
async fn the_keys_of_a_deleted_workspace_are_not_found_and_root_keys_are() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let (theirs, root) = (Secret::generate().expect("a key"), Secret::generate().expect("a key"));
    world.store.create_key(Some(workspace), "ci", &theirs, "test").await.expect("a stored key");
    world.store.create_key(None, "root", &root, "test").await.expect("a stored key");
    world.run_sql("UPDATE workspace SET deleted_at = now() WHERE id = $1", &[&workspace.0]).await;
    assert!(matches!(world.store.find_key(&theirs).await, Err(Error::NotFound)));
    assert_eq!(world.store.find_key(&root).await.expect("found").workspace, None);
}

#[tokio::test]
async fn a_key_of_an_unknown_workspace_is_refused_and_a_secret_is_stored_once() {
    let world = World::new().await;
    let secret = Secret::generate().expect("a key");
    let nowhere = kernel::ids::WorkspaceId(store::new_id());
    let refused = world.store.create_key(Some(nowhere), "ci", &secret, "test").await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(world.count("activity").await, 0, "what was refused is not audited as done");
    world.store.create_key(None, "one", &secret, "test").await.expect("a stored key");
    world.store.create_key(None, "two", &secret, "test").await.expect_err("the same secret again");
}

#[test]
fn what_cannot_be_a_key_is_refused_without_asking_the_database() {
    let good = Secret::generate().expect("a key").expose().to_owned();
    assert!(Secret::parse(&good).is_ok());
    let mut typo = good.clone();
    let at = good.len() - 20;
    typo.replace_range(at..=at, if &good[at..=at] == "0" { "1" } else { "0" });
    let table = [
        String::new(),
        "fbk_".to_owned(),
        good[1..].to_owned(),
        good[..good.len() - 1].to_owned(),
        format!("{good}0"),
        good.to_uppercase(),
        good.replace("fbk_", "sk_"),
        format!("fbk_{}", "é".repeat(36)),
        format!(" {good}"),
        typo,
    ];
    for text in table {
        assert!(matches!(Secret::parse(&text), Err(Malformed)), "{text:?}");
    }
}

#[test]
fn a_key_is_never_shown_by_accident_and_no_two_are_alike() {
    let (one, other) = (Secret::generate().expect("a key"), Secret::generate().expect("a key"));
    assert_eq!(format!("{one:?}"), "Secret(…)");
    assert!(one.is(&one.clone()) && !one.is(&other));
    assert_ne!(one.expose(), other.expose());
}
