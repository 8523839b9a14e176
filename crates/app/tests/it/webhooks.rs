//! Webhooks deliver the ends of executions: signed, and retried even if processes die. Also tests the commands.

mod inbox;
mod trigger_commands;
mod triggers;
mod unseen;

use serde_json::{Value, json};
use store::testing::Database;

use crate::secrets::KEY;
use crate::support::cli::Cli;
use crate::support::tenant::text;
use crate::support::{Server, Shared, Tenant, until};
use inbox::Inbox;

/// A server of this test, with its database.
struct Own {
    database: Database,
    server: Server,
}

/// A server that may call an inbox, and a tenant of it.
struct Scene<S> {
    inbox: Inbox,
    world: S,
    tenant: Tenant,
}

impl Scene<Shared> {
    async fn shared() -> Scene<Shared> {
        let (world, inbox) = (Shared::new().await, Inbox::start().await);
        let tenant = world.tenant("PRO").await;
        Scene { inbox, world, tenant }
    }
}

impl Scene<Own> {
    async fn own() -> Scene<Own> {
        let (database, inbox) = (Database::new().await, Inbox::start().await);
        let server = Server::start(&database.url, &settings(&inbox)).await;
        let tenant = Tenant::new(server.api(), "PRO").await;
        Scene { inbox, world: Own { database, server }, tenant }
    }

    async fn run_sql(&self, sql: &str) {
        self.world.database.client().await.batch_execute(sql).await.expect("a statement");
    }

    /// Another server on the same database, opened by the same root key.
    async fn another(&self, settings: &[String]) -> Server {
        Server::start_with(&self.world.database.url, self.world.server.root_key(), settings).await
    }
}

impl<S> Scene<S> {
    /// A webhook of the tenant: its id and secret.
    async fn webhook(&self, body: Value) -> (String, String) {
        let made = self.tenant.api.post("webhooks", body).await.expect(201);
        (text(&made["webhook"]["id"]), text(&made["secret"]))
    }

    /// The deliveries of a webhook, once they are so.
    async fn until_deliveries(&self, webhook: &str, what: &str, hold: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        until(what, async || {
            let page = self.tenant.api.get(&format!("webhooks/{webhook}/deliveries")).await.expect(200);
            let items = page["items"].as_array().expect("a list").clone();
            hold(&items).then_some(items)
        })
        .await
    }
}

fn settings(inbox: &Inbox) -> Vec<String> {
    vec![KEY.to_owned(), format!("outbound.allow={}", inbox.address)]
}

fn all(status: &str, count: usize) -> impl Fn(&[Value]) -> bool {
    move |items: &[Value]| items.len() == count && items.iter().all(|item| item["status"] == status)
}

#[tokio::test]
async fn an_end_is_delivered_and_the_code_of_the_page_verifies_it_before_and_after_a_rotation() {
    let scene = Scene::shared().await;
    let (webhook, first) = scene.webhook(json!({ "url": scene.inbox.url("/in") })).await;
    let document = json!({
        "name": "answer", "nodes": { "say": { "kind": "LOG", "with": { "message": "done" } } }, "outputs": { "n": 7 },
    });
    let applied =
        scene.tenant.api.post("workflow/definitions/apply", json!({ "document": document })).await.expect(200);
    let id = scene.tenant.start(&text(&applied["definition"]["id"])).await;
    let message = scene.inbox.until(1).await.remove(0);
    let observed = message.verified(&first).await.expect("signed");
    assert_eq!(observed["type"], "execution.completed");
    let data = &observed["data"];
    assert_eq!((&data["executionId"], &data["output"]), (&json!(id), &json!({ "n": 7 })));
    assert_eq!((&data["workflowName"], &data["status"]), (&json!("answer"), &json!("COMPLETED")));
    let execution = scene.tenant.api.get(data["url"].as_str().expect("a path")).await.expect(200);
    assert_eq!((&execution["completedAt"], &execution["id"]), (&data["completedAt"], &json!(id)));
    let delivered = scene.until_deliveries(&webhook, "it is delivered", all("DELIVERED", 1)).await;
    assert_eq!((&delivered[0]["id"], &delivered[0]["lastStatus"]), (&json!(message.id()), &json!(200)));

    let mut tampered = message.clone();
    tampered.body = tampered.body.replace('7', "8");
    assert_eq!(tampered.verified(&first).await, Err("ValueError: not signed with this secret".to_owned()));
    let rotate = async |overlap: u32| {
        let body = json!({ "gracePeriodSeconds": overlap });
        text(&scene.tenant.api.post(&format!("webhooks/{webhook}/rotate"), body).await.expect(200)["secret"])
    };
    let second = rotate(3600).await;
    let light = scene.tenant.light().await;
    scene.tenant.start(&light).await;
    let message = scene.inbox.until(2).await.remove(1);
    for secret in [&first, &second] {
        message.verified(secret).await.expect("signed with either");
    }
    let third = rotate(0).await;
    scene.tenant.start(&light).await;
    let message = scene.inbox.until(3).await.remove(2);
    message.verified(&third).await.expect("signed");
    for secret in [&first, &second] {
        message.verified(secret).await.expect_err("an old one");
    }
}

#[tokio::test]
async fn what_is_not_taken_is_tried_again_when_it_is_asked_for_and_shown_meanwhile() {
    let scene = Scene::shared().await;
    let (webhook, _) = scene.webhook(json!({ "url": scene.inbox.url("/in"), "events": ["FAILED"] })).await;
    scene.inbox.answer(503, &[("retry-after", "600")]);
    scene.inbox.answer(302, &[("location", "/elsewhere")]);
    scene.tenant.completed(&scene.tenant.start(&scene.tenant.light().await).await).await;
    let stop = json!({ "stop": { "kind": "FAIL", "with": { "message": "no" } } });
    scene.tenant.start(&scene.tenant.apply("broken", stop).await).await;
    let waits = |items: &[Value]| items.len() == 1 && items[0]["lastStatus"] == 503 && items[0]["status"] == "PENDING";
    let items = scene.until_deliveries(&webhook, "it waits", waits).await;
    let error = text(&items[0]["lastError"]);
    assert!(error.contains("answered 503: taken"), "{error}");
    let next: jiff::Timestamp = text(&items[0]["nextAttemptAt"]).parse().expect("a time");
    let wait = next.as_second() - jiff::Timestamp::now().as_second();
    assert!((500..=600).contains(&wait), "as it asked: {wait}");
    let id = text(&items[0]["id"]);
    let retry = format!("webhooks/{webhook}/deliveries/{id}/retry");
    scene.tenant.api.post(&retry, json!({})).await.expect(202);
    let redirected = |items: &[Value]| items[0]["lastStatus"] == 302;
    scene.until_deliveries(&webhook, "a redirect is an answer", redirected).await;
    scene.tenant.api.post(&retry, json!({})).await.expect(202);
    let items = scene.until_deliveries(&webhook, "it is delivered", all("DELIVERED", 1)).await;
    assert_eq!((&items[0]["attempts"], &items[0]["event"]), (&json!(3), &json!("FAILED")));
    let messages = scene.inbox.messages();
    assert_eq!(messages.len(), 3, "the redirect was not followed, and what completed was not asked for");
    assert!(messages.iter().all(|message| message.id() == id && message.body == messages[0].body));
    assert_eq!(messages[0].json()["data"]["error"]["message"], "no");
    let listed = scene.tenant.api.get(&format!("webhooks/{webhook}/deliveries?status=PENDING")).await.expect(200);
    assert_eq!(listed["items"], json!([]));
    let audited = scene.tenant.api.get("activity?limit=200").await.text;
    assert!(audited.contains("webhook.create") && audited.contains("webhook.retry"), "{audited}");
}

#[tokio::test]
async fn an_answer_is_judged_by_its_status_however_long_it_is() {
    let scene = Scene::shared().await;
    let (webhook, _) = scene.webhook(json!({ "url": scene.inbox.url("/in") })).await;
    scene.inbox.answer_with(503, &[("retry-after", "600")], "busy ".repeat(1 << 19));
    scene.inbox.answer_with(200, &[], "taken ".repeat(1 << 19));
    scene.tenant.start(&scene.tenant.light().await).await;
    let waits = |items: &[Value]| items.len() == 1 && items[0]["lastStatus"] == 503 && items[0]["status"] == "PENDING";
    let items = scene.until_deliveries(&webhook, "it is tried again", waits).await;
    let error = text(&items[0]["lastError"]);
    assert!(error.contains("answered 503: busy busy") && error.len() < 600, "{error}");
    let retry = format!("webhooks/{webhook}/deliveries/{}/retry", text(&items[0]["id"]));
    scene.tenant.api.post(&retry, json!({})).await.expect(202);
    let items = scene.until_deliveries(&webhook, "it is delivered", all("DELIVERED", 1)).await;
    assert_eq!((&items[0]["attempts"], &items[0]["lastStatus"]), (&json!(2), &json!(200)));
}

#[tokio::test]
async fn hanging_receivers_of_four_workspaces_do_not_block_deliveries_to_a_fifth() {
    let (database, hanging, quick) = (Database::new().await, Inbox::start().await, Inbox::start().await);
    let settings = [KEY.to_owned(), format!("outbound.allow={},{}", hanging.address, quick.address)];
    let server = Server::start(&database.url, &settings).await;
    hanging.hold(true);
    let mut held = Vec::new();
    for _ in 0..4 {
        let tenant = Tenant::new(server.api(), "PRO").await;
        let webhook = tenant.api.post("webhooks", json!({ "url": hanging.url("/in") })).await.expect(201);
        tenant.start_many(&tenant.light().await, 10).await;
        held.push((tenant, text(&webhook["webhook"]["id"])));
    }
    hanging.until(32).await;
    let fifth = Tenant::new(server.api(), "PRO").await;
    fifth.api.post("webhooks", json!({ "url": quick.url("/in") })).await.expect(201);
    fifth.start(&fifth.light().await).await;
    quick.until(1).await;
    for (tenant, webhook) in held {
        let sending = format!("webhooks/{webhook}/deliveries?status=SENDING");
        let sending = tenant.api.get(&sending).await.expect(200);
        let count = sending["items"].as_array().map_or(0, Vec::len);
        assert!(count <= 8, "at most eight at a time of one workspace: {count}");
    }
}

#[tokio::test]
async fn a_key_that_only_reads_is_shown_where_a_webhook_is_and_not_what_its_url_holds() {
    let scene = Scene::shared().await;
    let url = "https://x.example:8443/services/T0/hidden?token=hidden";
    let (webhook, _) = scene.webhook(json!({ "url": url })).await;
    let key = scene.tenant.api.post("keys", json!({ "name": "r", "scopes": ["read", "run"] })).await.expect(201);
    let reader = scene.tenant.api.with_key(&text(&key["key"]));
    for path in ["webhooks".to_owned(), format!("webhooks/{webhook}")] {
        let shown = reader.get(&path).await;
        assert!(shown.text.contains("\"https://x.example:8443\""), "{}", shown.text);
        assert!(!shown.text.contains("hidden"), "{}", shown.text);
        assert!(scene.tenant.api.get(&path).await.text.contains(url), "who may change it sees it");
    }
}

#[tokio::test]
async fn an_address_that_is_not_public_is_refused_and_the_reason_is_kept() {
    let scene = Scene::own().await;
    let (webhook, _) = scene.webhook(json!({ "url": scene.inbox.url("/in") })).await;
    // The API takes no such address; what is behind a name shows only here.
    scene.run_sql("UPDATE webhook SET url = 'http://127.0.0.1:9/x?token=hidden'").await;
    scene.tenant.start(&scene.tenant.light().await).await;
    let items = scene.until_deliveries(&webhook, "it fails", all("FAILED", 1)).await;
    let error = text(&items[0]["lastError"]);
    assert!(error.starts_with("egress_denied:") && !error.contains("hidden"), "{error}");
    assert_eq!(items[0]["attempts"], 1, "it would be refused again");
    let metrics = scene.world.server.anonymous().get("/metrics").await.text;
    assert!(metrics.contains("forebay_webhook_delivery_attempts_total{outcome=\"failed\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_process_killed_between_sending_and_storing_sends_again_under_the_same_id() {
    let mut scene = Scene::own().await;
    let (webhook, secret) = scene.webhook(json!({ "url": scene.inbox.url("/in") })).await;
    scene.inbox.hold(true);
    let id = scene.tenant.start(&scene.tenant.light().await).await;
    let first = scene.inbox.until(1).await.remove(0);
    scene.world.server.process.sigkill();
    scene.inbox.hold(false);
    // Its claim would end within a minute; here it is over.
    scene.run_sql("UPDATE webhook_delivery SET due_at = now()").await;
    scene.world.server = scene.another(&settings(&scene.inbox)).await;
    scene.tenant = scene.tenant.at(&scene.world.server.base);
    let messages = scene.inbox.until(2).await;
    assert_eq!((messages[1].id(), &messages[1].body), (first.id(), &first.body));
    assert_eq!(messages[1].verified(&secret).await.expect("signed")["data"]["executionId"], json!(id));
    let items = scene.until_deliveries(&webhook, "it is delivered", all("DELIVERED", 1)).await;
    assert_eq!(items[0]["attempts"], 2);
}

#[tokio::test]
async fn two_servers_tell_each_end_once_and_a_large_output_is_left_out() {
    let scene = Scene::own().await;
    let _second = scene.another(&settings(&scene.inbox)).await;
    let nodes = json!({ "say": { "kind": "LOG", "with": { "message": "done" } } });
    let document = json!({ "name": "echo", "nodes": nodes, "outputs": { "all": "${{ inputs.text }}" } });
    let applied =
        scene.tenant.api.post("workflow/definitions/apply", json!({ "document": document })).await.expect(200);
    let definition = &applied["definition"]["id"];
    let body = json!({ "url": scene.inbox.url("/in"), "workflowDefinitionId": definition, "events": ["COMPLETED"] });
    let (webhook, _) = scene.webhook(body).await;
    for length in [10; 20].into_iter().chain([70_000]) {
        let body = json!({ "workflowDefinitionId": definition, "input": { "text": "x".repeat(length) } });
        scene.tenant.api.post("workflow/executions/start", body).await.expect(202);
    }
    scene.until_deliveries(&webhook, "all are delivered", all("DELIVERED", 21)).await;
    let messages = scene.inbox.messages();
    assert_eq!(messages.len(), 21, "none twice: nobody died");
    let cut: Vec<Value> =
        messages.iter().map(|it| it.json()["data"].clone()).filter(|it| it["truncated"] == true).collect();
    assert_eq!((cut.len(), &cut[0]["output"]), (1, &Value::Null));
    assert!(messages.iter().all(|message| message.body.len() < 70_000));
}

#[tokio::test]
async fn a_webhook_is_made_listed_changed_and_removed_by_commands() {
    let scene = Scene::shared().await;
    let cli = Cli::of(&scene.world.server.base, scene.tenant.api.key.as_deref().expect("a key"));
    scene.tenant.light().await;
    let url = scene.inbox.url("/in");
    let secret = cli.ok(&["webhook", "create", &url, "--event", "completed,FAILED", "--workflow", "light"]).await;
    assert!(secret.starts_with("whsec_") && secret.lines().count() == 1, "{secret}");
    let listed = cli.ok(&["webhook", "ls"]).await;
    assert!(listed.contains(&url) && listed.contains("COMPLETED,FAILED") && listed.contains("light"), "{listed}");
    let id = text(&cli.json(&["webhook", "ls"]).await["items"][0]["id"]);
    cli.ok(&["run", "light", "--watch"]).await;
    scene.until_deliveries(&id, "it is delivered", all("DELIVERED", 1)).await;
    let deliveries = cli.ok(&["webhook", "deliveries", &id, "--status", "delivered"]).await;
    assert!(deliveries.contains("DELIVERED") && deliveries.contains("200"), "{deliveries}");
    let delivery = text(&cli.json(&["webhook", "deliveries", &id]).await["items"][0]["id"]);
    cli.ok(&["webhook", "retry", &id, &delivery]).await;
    scene.inbox.until(2).await;
    let next = cli.ok(&["webhook", "rotate", &id, "--grace-period", "60s"]).await;
    assert!(next.starts_with("whsec_") && next != secret);
    let off = cli.ok(&["webhook", "set", &id, "--off"]).await;
    assert!(off.contains("off: disabled by key:"), "{off}");
    let refused = cli.run(&["webhook", "retry", &id, &delivery]).await;
    assert!(refused.code == 1 && refused.stderr.contains("turn it on first"), "{refused:?}");
    cli.ok(&["webhook", "set", &id, "--on"]).await;
    let shown = cli.ok(&["webhook", "get", &id]).await;
    assert!(shown.contains("on") && !shown.contains("whsec_"), "{shown}");
    cli.ok(&["webhook", "delete", &id, "--yes"]).await;
    assert_eq!(cli.json(&["webhook", "ls"]).await["items"], json!([]));
}

#[tokio::test]
async fn a_secret_of_a_webhook_moves_to_another_outer_key_with_the_others() {
    const NEXT: &str = "next:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
    let mut scene = Scene::own().await;
    let (_, secret) = scene.webhook(json!({ "url": scene.inbox.url("/in") })).await;
    let cli = Cli::new();
    let old = KEY.split_once('=').expect("a setting").1;
    cli.file("keys", &format!("{NEXT}\n{old}\n"));
    let arguments =
        ["secret", "rotate-keys", "--database-url", &scene.world.database.url, "--set", "secrets.key_file=keys"];
    assert_eq!(cli.ok(&arguments).await, "secrets encrypted with the first key: 1\n");
    assert_eq!(cli.ok(&arguments).await, "secrets encrypted with the first key: 0\n");
    let settings = [format!("secrets.keys={NEXT}"), format!("outbound.allow={}", scene.inbox.address)];
    scene.world.server = scene.another(&settings).await;
    scene.tenant = scene.tenant.at(&scene.world.server.base);
    scene.tenant.start(&scene.tenant.light().await).await;
    scene.inbox.until(1).await.remove(0).verified(&secret).await.expect("the same secret, under another key");
}

#[tokio::test]
async fn a_url_that_the_guard_would_never_call_is_refused_when_it_is_given() {
    let scene = Scene::own().await;
    let (webhook, _) = scene.webhook(json!({ "url": scene.inbox.url("/in") })).await;
    for (url, expected) in [
        ("https://user:hunter2@shop.example/x", "carries a user name or password"),
        ("http://127.0.0.1:9/x", "outbound.allow"),
        ("http://[::1]/x", "outbound.allow"),
        ("http://10.0.0.7/x", "outbound.allow"),
        ("http://localhost:9000/x", "outbound.allow"),
        ("https://shop.example:5432/x", "outbound.allow"),
    ] {
        for refused in [
            scene.tenant.api.post("webhooks", json!({ "url": url })).await,
            scene.tenant.api.patch(&format!("webhooks/{webhook}"), json!({ "url": url })).await,
        ] {
            let problem = refused.expect(422);
            let detail = text(&problem["detail"]);
            assert!(detail.contains(expected) && !detail.contains("hunter2"), "{url}: {detail}");
        }
    }
    let kept = scene.tenant.api.get(&format!("webhooks/{webhook}")).await.expect(200);
    assert_eq!(kept["url"], scene.inbox.url("/in"));
}

#[tokio::test]
async fn what_cannot_be_a_webhook_is_refused_and_without_a_key_to_seal_none_is_made() {
    let scene = Scene::own().await;
    let other = Tenant::new(scene.world.server.api(), "PRO").await;
    let foreign = other.light().await;
    for (body, status, code) in [
        (json!({ "url": "ftp://x.example" }), 422, "validation_failed"),
        (json!({ "url": "https://x.example/a b" }), 422, "validation_failed"),
        (json!({ "url": "https://x.example", "events": [] }), 422, "validation_failed"),
        (json!({ "url": "https://x.example", "events": ["RUNNING"] }), 422, "validation_failed"),
        (json!({ "url": "https://x.example", "secret": "mine" }), 422, "validation_failed"),
        (json!({ "url": "https://x.example", "workflowDefinitionId": foreign }), 404, "not_found"),
        (json!({ "url": "https://x.example", "workspaceId": other.id }), 403, "workspace_mismatch"),
    ] {
        assert_eq!(scene.tenant.api.post("webhooks", body.clone()).await.problem(status), code, "{body}");
    }
    let keyless = scene.another(&[]).await;
    let refused = scene.tenant.at(&keyless.base).api.post("webhooks", json!({ "url": "https://x.example" })).await;
    assert_eq!(refused.problem(409), "conflict");
    assert!(refused.text.contains("secrets.key_file"), "{}", refused.text);
}
