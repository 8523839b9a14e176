//! The commands `forebay trigger …`: an address is printed when it is created, and never again.

use expect_test::expect;
use serde_json::json;

use super::Scene;
use super::triggers::{JSON, address, apply, post};
use crate::support::cli::Cli;
use crate::support::tenant::text;

#[tokio::test]
async fn a_trigger_is_made_rotated_and_revoked_by_commands_and_a_draft_has_none() {
    let scene = Scene::shared().await;
    let cli = Cli::of(&scene.world.server.base, scene.tenant.api.key.as_deref().expect("a key"));
    cli.file("take.yaml", "name: take\non: {http: {}}\nnodes:\n  say: {kind: LOG, with: {message: hello}}\n");
    cli.ok(&["apply", "take.yaml"]).await;
    let bare = cli.ok(&["trigger", "ls"]).await;
    assert!(bare.contains("no address yet"), "{bare}");
    let address = cli.ok(&["trigger", "create", "take"]).await;
    let path = address.trim().strip_prefix(&scene.world.server.base).expect("a whole address").to_owned();
    let anonymous = scene.world.server.anonymous();
    post(&anonymous, &path, &[JSON], "{}").await.expect(202);
    let listed = cli.ok(&["trigger", "ls"]).await;
    assert!(listed.contains(&path[10..22]) && !listed.contains(&path[10..]), "{listed}");
    let next = cli.ok(&["trigger", "rotate", "take"]).await;
    let next = next.trim().strip_prefix(&scene.world.server.base).expect("a whole address").to_owned();
    assert_eq!(post(&anonymous, &path, &[JSON], "{}").await.status, 404);
    post(&anonymous, &next, &[JSON], "{}").await.expect(202);
    cli.ok(&["apply", "take.yaml"]).await;
    post(&anonymous, &next, &[JSON], "{}").await.expect(202);
    cli.ok(&["trigger", "revoke", "take", "--yes"]).await;
    assert_eq!(post(&anonymous, &next, &[JSON], "{}").await.status, 404);
    let draft = json!({ "document": {
        "name": "draft", "on": { "http": {} }, "nodes": { "say": { "kind": "LOG", "with": { "message": "x" } } },
    } });
    scene.tenant.api.post("workflow/definitions", draft).await.expect(201);
    let refused = cli.run(&["trigger", "create", "draft"]).await;
    assert!(refused.code == 1 && refused.stderr.contains("on: {http: {}}"), "{refused:?}");
}

#[tokio::test]
async fn a_trigger_is_shown_without_its_address() {
    let scene = Scene::shared().await;
    let cli = Cli::of(&scene.world.server.base, scene.tenant.api.key.as_deref().expect("a key"));
    let definition = apply(&scene.tenant, "take", json!({ "rate_per_minute": 60 }), json!({})).await;
    let id = text(&cli.json(&["trigger", "ls"]).await["items"][0]["id"]);
    let mut shown = cli.show(&["trigger", "get", &id]).await;
    let old = address(&scene.tenant, &definition).await;
    let new = cli.ok(&["trigger", "rotate", "take", "--grace-period", "1h"]).await;
    let (old, new) = (&old["/triggers/".len()..], new.trim().split("/triggers/").last().expect("a token"));
    for more in [&[][..], &["-o", "json"]] {
        let text = cli.show(&[&["trigger", "get", &id], more].concat()).await;
        assert!(text.contains(&new[..12]), "how it begins tells which it is: {text}");
        assert!(!text.contains(old) && !text.contains(new), "it is not shown again: {text}");
        shown.push_str(&text.replace(&new[..12], "<prefix>"));
    }
    shown.push_str(&cli.show(&["trigger", "get", &store::new_id().to_string()]).await);
    expect![[r#"
        $ forebay trigger get <id>
        id                   <id>
        workflow             take
        workspace            <id>
        prefix               no address yet
        rotated              -
        old address expires  -
        rule                 {"rate_per_minute":60}
        created              <time>
        $ forebay trigger get <id>
        id                   <id>
        workflow             take
        workspace            <id>
        prefix               <prefix>
        rotated              <time>
        old address expires  <time>
        rule                 {"rate_per_minute":60}
        created              <time>
        $ forebay trigger get <id> -o json
        {"id":"<id>","workspaceId":"<id>","workflowDefinitionId":"<id>","workflowName":"take","tokenPrefix":"<prefix>","previousExpiresAt":"<time>","rotatedAt":"<time>","rule":{"rate_per_minute":60},"createdAt":"<time>","updatedAt":"<time>"}
        $ forebay trigger get <id>
        ! error: there is no such trigger
        = 1
    "#]]
    .assert_eq(&shown);
}
