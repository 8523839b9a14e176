//! A new API key has at most the rights of the key that creates it. It is shown once, and listed by its prefix only.
//! Once revoked, it is refused by every process.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http::Api;
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, World, until};

/// How soon a revoked key must be refused by every process.
const SOON: Duration = Duration::from_secs(5);

/// A key of the tenant with these scopes, and its id.
async fn key(tenant: &Tenant, scopes: Value) -> (Api, String) {
    let made = tenant.api.post("keys", json!({ "name": "k", "scopes": scopes })).await.expect(201);
    assert_eq!(made["scopes"], scopes);
    (tenant.api.with_key(&text(&made["key"])), text(&made["id"]))
}

#[tokio::test]
async fn a_key_never_makes_one_with_more_than_its_own_scopes() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let all = ["read", "run", "manage"];
    for holds in 1..8usize {
        let pick = |bits: usize| -> Vec<&str> { (0..3).filter(|n| bits >> n & 1 == 1).map(|n| all[n]).collect() };
        let (maker, _) = key(&tenant, json!(pick(holds))).await;
        for asks in 1..8usize {
            let reply = maker.post("keys", json!({ "name": "child", "scopes": pick(asks) })).await;
            let may = holds & 4 == 4 && asks & !holds == 0;
            if may {
                assert_eq!(reply.expect(201)["scopes"], json!(pick(asks)));
            } else {
                assert_eq!(reply.problem(403), "forbidden", "{:?} makes {:?}", pick(holds), pick(asks));
            }
        }
        let unsaid = maker.post("keys", json!({ "name": "child" })).await;
        if holds & 4 == 4 {
            assert_eq!(unsaid.expect(201)["scopes"], json!(pick(holds)), "as much as its maker, if not said");
        }
    }
    for (scopes, status) in
        [(json!([]), 422), (json!(["root"]), 422), (json!("read"), 422), (json!(["read", "read"]), 201)]
    {
        assert_eq!(tenant.api.post("keys", json!({ "name": "k", "scopes": scopes })).await.status, status, "{scopes}");
    }
}

#[tokio::test]
async fn a_key_is_shown_once_and_listed_by_how_it_begins() {
    let world = World::new().await;
    let (tenant, other) = (world.tenant("FREE").await, world.tenant("FREE").await);
    let made =
        tenant.api.post("keys", json!({ "name": "shop", "scopes": ["run"], "expiresAt": "2098-01-01T00:00:00Z" }));
    let made = made.await.expect(201);
    let secret = text(&made["key"]);
    let listed = tenant.api.get("keys").await;
    assert!(!listed.text.contains(&secret), "the key itself is never shown again");
    let items = listed.expect(200)["items"].as_array().expect("a list").clone();
    assert_eq!(items.len(), 2, "its own, and nobody else's");
    let item = items.iter().find(|item| item["id"] == made["id"]).expect("the new one");
    assert_eq!(item["prefix"], secret[..12]);
    assert_eq!((&item["scopes"], &item["expiresAt"]), (&json!(["run"]), &json!("2098-01-01T00:00:00Z")));
    assert!(item.get("lastUsedAt").is_none(), "it was never used");
    tenant.api.with_key(&secret).get("workspaces").await.problem(403);
    let items = tenant.api.get("keys").await.expect(200);
    let used = items["items"].as_array().expect("a list").iter().all(|item| item["lastUsedAt"].is_string());
    assert!(used, "a refused request is a use too: {items}");
    let root = world.server.api();
    let count = async |path: &str| root.get(path).await.expect(200)["items"].as_array().map(Vec::len);
    assert_eq!(count("keys").await, Some(3));
    assert_eq!(count(&format!("keys?workspaceId={}", other.id)).await, Some(1));
    let at = |reply: Value| text(&reply["nextCursor"]);
    let cursor = at(root.get("keys?limit=2").await.expect(200));
    assert_eq!(count(&format!("keys?limit=2&cursor={cursor}")).await, Some(1));
    for expiry in ["2020-01-01T00:00:00Z", "9999-12-30T00:00:00Z", "never"] {
        let reply = tenant.api.post("keys", json!({ "name": "k", "expiresAt": expiry })).await;
        assert_eq!(reply.problem(422), "validation_failed", "{expiry}");
    }
    let by: Value = tenant.api.get(&format!("activity?subject={}", text(&made["id"]))).await.expect(200);
    assert_eq!(by["items"][0]["action"], "key.create");
}

/// Waits until a key is refused; how much later than now the last request was sent that it still opened.
async fn refused_after(api: &Api) -> Duration {
    let (started, mut opened) = (Instant::now(), Duration::ZERO);
    until("the key is refused", async || {
        let sent = started.elapsed();
        let reply = api.get("workspaces").await;
        if reply.status != 401 {
            opened = sent;
        }
        (reply.status == 401).then(|| reply.problem(401).to_owned())
    })
    .await;
    opened
}

#[tokio::test]
async fn a_revoked_or_expired_key_is_refused_by_every_process_within_five_seconds() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let elsewhere = world.another(&[]).await;
    for expires in [false, true] {
        let (here, id) = key(&tenant, json!(["read"])).await;
        let there = here.at(&elsewhere.base);
        for api in [&here, &there] {
            api.get("workspaces").await.expect(200);
        }
        if expires {
            world.run_sql(&format!("UPDATE api_key SET expires_at = clock_timestamp() WHERE id = '{id}'")).await;
        } else {
            tenant.api.post(&format!("keys/{id}/revoke"), Value::Null).await.expect(204);
            here.get("workspaces").await.problem(401);
            assert_eq!(
                tenant.api.post(&format!("keys/{id}/revoke"), Value::Null).await.problem(404),
                "not_found",
                "once"
            );
        }
        let (soon, later) = tokio::join!(refused_after(&here), refused_after(&there));
        assert!(soon < SOON && later < SOON, "{soon:?}, {later:?}");
    }
    let activity = tenant.api.get("activity").await.expect(200);
    let revoked = activity["items"].as_array().expect("a list").iter().filter(|item| item["action"] == "key.revoke");
    assert_eq!(revoked.count(), 1);
}

#[tokio::test]
async fn a_short_lived_key_makes_no_eternal_one_and_what_it_made_ends_with_it() {
    let world = World::with(&["auth.max_keys_per_workspace=5"]).await;
    let tenant = world.tenant("FREE").await;
    let short = json!({ "name": "short", "expiresAt": "2098-01-01T00:00:00Z" });
    let short = tenant.api.post("keys", short).await.expect(201);
    let (maker, id) = (tenant.api.with_key(&text(&short["key"])), text(&short["id"]));
    let child = maker.post("keys", json!({ "name": "child" })).await.expect(201);
    assert_eq!(child["expiresAt"], "2098-01-01T00:00:00Z", "the answer says when it ends");
    assert_eq!(child["createdBy"], format!("key:{id}"));
    let late = maker.post("keys", json!({ "name": "late", "expiresAt": "2098-01-01T00:00:01Z" })).await;
    assert_eq!(late.problem(422), "validation_failed");
    assert!(late.text.contains("2098-01-01T00:00:00Z"), "{}", late.text);
    let listed = tenant.api.get("keys").await.expect(200);
    let by: Vec<&Value> = listed["items"].as_array().expect("a list").iter().map(|key| &key["createdBy"]).collect();
    assert_eq!(by[0], "root");
    assert_eq!(by[2], &json!(format!("key:{id}")));
    let child = tenant.api.with_key(&text(&child["key"]));
    let grandchild = child.post("keys", json!({ "name": "grandchild" })).await.expect(201);
    let grandchild = tenant.api.with_key(&text(&grandchild["key"]));
    tenant.api.post("keys", json!({ "name": "fifth" })).await.expect(201);
    let sixth = tenant.api.post("keys", json!({ "name": "sixth" })).await;
    assert_eq!(sixth.problem(409), "conflict");
    assert!(sixth.text.contains("auth.max_keys_per_workspace"), "{}", sixth.text);
    let elsewhere = world.another(&[]).await;
    for api in [&child, &grandchild] {
        api.get("workspaces").await.expect(200);
        api.at(&elsewhere.base).get("workspaces").await.expect(200);
    }
    tenant.api.post(&format!("keys/{id}/revoke"), Value::Null).await.expect(204);
    for api in [&maker, &child, &grandchild] {
        api.get("workspaces").await.problem(401);
        let there = refused_after(&api.at(&elsewhere.base)).await;
        assert!(there < SOON, "{there:?}");
    }
    tenant.api.get("workspaces").await.expect(200);
}
