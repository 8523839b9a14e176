//! API keys: hashed at rest, found by their secret, and gone when revoked.

use kernel::access::{Scope, Scopes};
use kernel::ids::WorkspaceId;
use store::Error;
use store::key::{Key, Malformed, NewKey, Secret};

use crate::support::World;

/// A key that may do everything its owner may.
fn key(workspace: Option<WorkspaceId>, name: &str) -> NewKey<'_> {
    NewKey { workspace, name, scopes: Scopes::all(), expires_at: None }
}

#[tokio::test]
async fn a_key_is_found_by_its_secret_and_only_its_hash_is_stored() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    for owner in [Some(workspace), None] {
        let secret = Secret::generate().expect("a key");
        let id = world.store.create_key(&key(owner, "ci"), &secret, "test").await.expect("a stored key");
        let found = world.store.find_key(&secret).await.expect("found");
        assert_eq!(found, Key { id, workspace: owner, scopes: Scopes::all() });
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
    world.store.create_key(&key(None, "root"), &secret, "test").await.expect("a stored key");
    world.run_sql("UPDATE api_key SET revoked_at = now()", &[]).await;
    assert!(matches!(world.store.find_key(&secret).await, Err(Error::NotFound)));
    assert!(!world.store.has_root_key().await.expect("an answer"));
}

#[tokio::test]
async fn the_keys_of_a_deleted_workspace_are_not_found_and_root_keys_are() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let (theirs, root) = (Secret::generate().expect("a key"), Secret::generate().expect("a key"));
    world.store.create_key(&key(Some(workspace), "ci"), &theirs, "test").await.expect("a stored key");
    world.store.create_key(&key(None, "root"), &root, "test").await.expect("a stored key");
    world.run_sql("UPDATE workspace SET deleted_at = now() WHERE id = $1", &[&workspace.0]).await;
    assert!(matches!(world.store.find_key(&theirs).await, Err(Error::NotFound)));
    assert_eq!(world.store.find_key(&root).await.expect("found").workspace, None);
}

#[tokio::test]
async fn a_key_of_an_unknown_workspace_is_refused_and_a_secret_is_stored_once() {
    let world = World::new().await;
    let secret = Secret::generate().expect("a key");
    let nowhere = WorkspaceId(store::new_id());
    let refused = world.store.create_key(&key(Some(nowhere), "ci"), &secret, "test").await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(world.count("activity").await, 0, "what was refused is not audited as done");
    world.store.create_key(&key(None, "one"), &secret, "test").await.expect("a stored key");
    world.store.create_key(&key(None, "two"), &secret, "test").await.expect_err("the same secret again");
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

#[tokio::test]
async fn a_key_has_the_scopes_it_was_made_with_and_ends_when_it_expires() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    for scopes in [vec![Scope::Read], vec![Scope::Run], vec![Scope::Read, Scope::Manage], Scope::ALL.to_vec()] {
        let secret = Secret::generate().expect("a key");
        let scopes: Scopes = scopes.into_iter().collect();
        let new = NewKey { scopes, ..key(Some(workspace), "ci") };
        let id = world.store.create_key(&new, &secret, "test").await.expect("a stored key");
        assert_eq!(world.store.find_key(&secret).await.expect("found"), Key { id, workspace: Some(workspace), scopes });
        let listed = world.store.keys(Some(workspace), None, 10).await.expect("a list").pop().expect("the newest");
        assert_eq!((listed.id, listed.scopes), (id, scopes));
        assert_eq!(listed.prefix.as_deref(), Some(&secret.expose()[..12]));
        assert!(listed.last_used_at.is_some(), "it was just used");
        world.run_sql("UPDATE api_key SET expires_at = now() + interval '1 hour' WHERE id = $1", &[&id.0]).await;
        world.store.find_key(&secret).await.expect("still good");
        world.run_sql("UPDATE api_key SET expires_at = now() WHERE id = $1", &[&id.0]).await;
        assert!(matches!(world.store.find_key(&secret).await, Err(Error::NotFound)), "expired");
    }
}

#[tokio::test]
async fn a_keys_use_is_noted_to_the_minute() {
    let world = World::new().await;
    let secret = Secret::generate().expect("a key");
    let id = world.store.create_key(&key(None, "root"), &secret, "test").await.expect("a stored key");
    let version = "SELECT xmin::text FROM api_key WHERE id = $1";
    let unused: String = world.get(version, &[&id.0]).await;
    world.store.find_key(&secret).await.expect("found");
    let used: String = world.get(version, &[&id.0]).await;
    assert_ne!(unused, used);
    world.store.find_key(&secret).await.expect("found");
    assert_eq!(world.get::<String>(version, &[&id.0]).await, used, "the same minute is not written twice");
    world.run_sql("UPDATE api_key SET last_used_at = last_used_at - interval '61 seconds'", &[]).await;
    world.store.find_key(&secret).await.expect("found");
    assert_eq!(world.count("api_key WHERE last_used_at > now() - interval '30 seconds'").await, 1);
}

#[tokio::test]
async fn a_key_is_revoked_once_by_its_own_workspace_or_by_root() {
    let world = World::new().await;
    let (workspace, stranger) = (world.workspace("PRO").await, world.workspace("PRO").await);
    for by in [Some(workspace), None] {
        let secret = Secret::generate().expect("a key");
        let id = world.store.create_key(&key(Some(workspace), "ci"), &secret, "test").await.expect("a stored key");
        let theirs = world.store.revoke_key(id, Some(stranger), "test").await;
        assert!(matches!(theirs, Err(Error::NotFound)), "{theirs:?}");
        world.store.find_key(&secret).await.expect("a stranger ends nothing");
        world.store.revoke_key(id, by, "test").await.expect("revoked");
        assert!(matches!(world.store.find_key(&secret).await, Err(Error::NotFound)));
        let again = world.store.revoke_key(id, by, "test").await;
        assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
        assert!(world.store.keys(None, None, 10).await.expect("a list").is_empty(), "the revoked are not listed");
    }
    assert_eq!(world.count("activity WHERE action = 'key.revoke'").await, 2);
}
