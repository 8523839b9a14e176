//! API keys are stored as hashes, found by their secret, and not found once they are revoked.

use jiff::{SignedDuration, Timestamp};
use kernel::access::{Scope, Scopes};
use kernel::ids::{KeyId, WorkspaceId};
use store::Error;
use store::access::key::{Denied, Issued, Key, KeyCreator, Malformed, NewKey, Secret};

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
    assert_eq!(world.count("activity").await, 0, "a refused creation is not audited");
    world.store.create_key(&key(None, "one"), &secret, "test").await.expect("a stored key");
    world.store.create_key(&key(None, "two"), &secret, "test").await.expect_err("the same secret again");
}

#[test]
fn a_malformed_key_is_refused_without_a_query() {
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
fn a_key_is_never_printed_and_no_two_are_alike() {
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
async fn a_keys_last_use_is_recorded_to_the_minute() {
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
        world.store.find_key(&secret).await.expect("another workspace cannot revoke it");
        world.store.revoke_key(id, by, "test").await.expect("revoked");
        assert!(matches!(world.store.find_key(&secret).await, Err(Error::NotFound)));
        let again = world.store.revoke_key(id, by, "test").await;
        assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
        assert!(world.store.keys(None, None, 10).await.expect("a list").is_empty(), "revoked keys are not listed");
    }
    assert_eq!(world.count("activity WHERE action = 'key.revoke'").await, 2);
}

/// Makes a key of the workspace with another key.
async fn child(world: &World, new: &NewKey<'_>, maker: KeyId) -> Result<(Secret, Issued), Denied> {
    let secret = Secret::generate().expect("a key");
    let maker = KeyCreator { actor: &format!("key:{maker}"), key: Some(maker), max_active: 100 };
    let issued = world.store.issue_key(new, &secret, &maker).await.expect("an answer")?;
    Ok((secret, issued))
}

#[tokio::test]
async fn a_key_that_another_made_ends_no_later_than_that_one() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let to_the_second = Timestamp::from_second(Timestamp::now().as_second()).expect("a time");
    let (noon, evening) =
        (to_the_second + SignedDuration::from_hours(1), to_the_second + SignedDuration::from_hours(9));
    let short = NewKey { expires_at: Some(noon), ..key(Some(workspace), "short") };
    let maker = world.store.create_key(&short, &Secret::generate().expect("a key"), "test").await.expect("a key");
    let (_, unsaid) = child(&world, &key(Some(workspace), "unsaid"), maker).await.expect("made");
    assert_eq!(unsaid.expires_at, Some(noon), "it expires with its maker");
    let late = NewKey { expires_at: Some(evening), ..key(Some(workspace), "late") };
    assert_eq!(child(&world, &late, maker).await.expect_err("too late"), Denied::Outlives { limit: noon });
    let (_, grandchild) = child(&world, &key(Some(workspace), "grandchild"), unsaid.id).await.expect("made");
    assert_eq!(grandchild.expires_at, Some(noon));
    let listed = world.store.keys(Some(workspace), None, 10).await.expect("a list");
    let by: Vec<_> = listed.iter().map(|key| key.created_by.clone().expect("known")).collect();
    assert_eq!(by, ["test".to_owned(), format!("key:{maker}"), format!("key:{}", unsaid.id)]);
    world.run_sql("UPDATE api_key SET expires_at = now() WHERE id = $1", &[&maker.0]).await;
    assert_eq!(child(&world, &key(Some(workspace), "x"), maker).await.expect_err("ended"), Denied::CreatorInactive);
}

#[tokio::test]
async fn revoking_a_key_revokes_exactly_the_keys_it_made() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let own = key(Some(workspace), "k");
    let (first, other) = (Secret::generate().expect("a key"), Secret::generate().expect("a key"));
    let root = world.store.create_key(&own, &first, "test").await.expect("a key");
    world.store.create_key(&own, &other, "test").await.expect("a key");
    let (below, made) = child(&world, &own, root).await.expect("made");
    // A key revoked before does not protect the keys it made.
    let (_, between) = child(&world, &own, made.id).await.expect("made");
    let (deepest, deep) = child(&world, &own, between.id).await.expect("made");
    world.run_sql("UPDATE api_key SET revoked_at = now() WHERE id = $1", &[&between.id.0]).await;
    let mut ended = world.store.revoke_key(root, Some(workspace), "test").await.expect("revoked");
    ended.sort_unstable();
    assert_eq!(ended, [root, made.id, deep.id]);
    for secret in [&first, &below, &deepest] {
        assert!(matches!(world.store.find_key(secret).await, Err(Error::NotFound)));
    }
    world.store.find_key(&other).await.expect("nobody's child");
    assert_eq!(world.count("activity WHERE action = 'key.revoke'").await, 3);
    assert_eq!(child(&world, &own, made.id).await.expect_err("revoked"), Denied::CreatorInactive);
}

#[tokio::test]
async fn a_key_that_is_revoked_meanwhile_makes_no_key() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let own = key(Some(workspace), "k");
    for _ in 0..10 {
        let root = world.store.create_key(&own, &Secret::generate().expect("a key"), "test").await.expect("a key");
        let (_, made) = child(&world, &own, root).await.expect("made");
        let revoke = world.store.revoke_key(root, None, "test");
        let (revoked, one, two) = tokio::join!(revoke, child(&world, &own, root), child(&world, &own, made.id));
        revoked.expect("revoked");
        for (secret, _) in [one, two].into_iter().flatten() {
            assert!(matches!(world.store.find_key(&secret).await, Err(Error::NotFound)), "it was made, and revoked");
        }
        assert_eq!(world.count("api_key WHERE revoked_at IS NULL").await, 0);
    }
}

#[tokio::test]
async fn a_workspace_has_a_limit_of_active_keys() {
    let world = World::new().await;
    let (workspace, other) = (world.workspace("PRO").await, world.workspace("PRO").await);
    let maker = KeyCreator { actor: "root", key: None, max_active: 3 };
    let make = async |workspace: WorkspaceId| {
        let secret = Secret::generate().expect("a key");
        world.store.issue_key(&key(Some(workspace), "k"), &secret, &maker).await.expect("an answer")
    };
    let made = futures_util::future::join_all((0..8).map(|_| make(workspace))).await;
    let made: Vec<Issued> = made.into_iter().flatten().collect();
    assert_eq!(made.len(), 3, "however many concurrent requests");
    assert_eq!(make(workspace).await, Err(Denied::TooMany { most: 3 }));
    make(other).await.expect("another workspace has its own limit");
    world.store.revoke_key(made[0].id, None, "test").await.expect("revoked");
    world.run_sql("UPDATE api_key SET expires_at = now() WHERE id = $1", &[&made[1].id.0]).await;
    for _ in 0..2 {
        make(workspace).await.expect("revoked and expired keys do not count");
    }
    assert_eq!(make(workspace).await, Err(Denied::TooMany { most: 3 }));
}
