//! The token of a trigger and the secret of a webhook appear in no table, log, metric or trace.

use kernel::signals::spans;
use reqwest::Method;
use serde_json::json;
use store::testing::Database;

use super::inbox::Inbox;
use super::settings;
use super::triggers::{address, apply};
use crate::canary::dump;
use crate::support::collector::Collector;
use crate::support::http::send;
use crate::support::tenant::text;
use crate::support::{Server, Tenant, until};

#[tokio::test]
async fn a_token_and_a_secret_are_in_nothing_that_is_stored_or_shown() {
    let (database, collector, inbox) = (Database::new().await, Collector::start().await, Inbox::start().await);
    let mut settings = settings(&inbox);
    settings.push("log.filter=debug".to_owned());
    let root = store::access::key::Secret::generate().expect("randomness");
    let mut server = Server::spawn_in(&database.url, &root, &settings, &collector.environment());
    server.ready().await;
    let tenant = Tenant::new(server.api(), "PRO").await;
    let made = tenant.api.post("webhooks", json!({ "url": inbox.url("/in") })).await.expect(201);
    let secret = text(&made["secret"]);
    let path = address(&tenant, &apply(&tenant, "take", json!({ "max_body_bytes": 10 }), json!({})).await).await;
    let anonymous = server.anonymous();
    let ask = |path: &str, body: &str| send(anonymous.request(Method::POST, path).body(body.to_owned()));
    let started = ask(&path, "hello").await.expect(202);
    tenant.completed(&text(&started["executionId"])).await;
    inbox.until(1).await;
    // No error message contains the address either.
    let mut observed = ask(&path, "much too long for it").await.text;
    for wrong in [format!("{path}/more"), path.to_uppercase(), format!("{path}?x=1"), path[..path.len() - 1].to_owned()]
    {
        observed.push_str(&ask(&wrong, "hello").await.text);
    }
    observed.push_str(&anonymous.get(&path).await.text);
    observed.push_str(&tenant.api.get("triggers").await.text);
    observed.push_str(&tenant.api.get("webhooks").await.text);
    observed.push_str(&tenant.api.get("activity?limit=200").await.text);
    let metrics = anonymous.get("/metrics").await.text;
    assert!(metrics.contains("route=\"/triggers/{token}\""), "by its route: {metrics}");
    until("the request has a span", async || {
        let is = |span: &crate::support::collector::Span| {
            span.name == spans::HTTP_REQUEST.name
                && span.fields["route"] == json!({ "stringValue": "/triggers/{token}" })
        };
        collector.spans().iter().any(is).then_some(())
    })
    .await;
    let stored = dump(&database).await;
    assert!(stored.contains("== trigger.token_hash\n\\x"), "the hash is there");
    server.process.signal(nix::sys::signal::Signal::SIGTERM);
    server.process.ended().await;
    let log = [server.process.stdout.all(), server.process.stderr.all()].concat().join("\n");
    assert!(log.contains("DEBUG") && log.contains("Webhook delivery attempted"), "it was logged at length");
    let spans = format!("{:?}", collector.spans());
    // Without what they begin with, which may be shown.
    let token = &path["/triggers/fbt_".len() + 8..];
    let secret = &secret["whsec_".len()..];
    for (place, text) in
        [("answers", &observed), ("metrics", &metrics), ("tables", &stored), ("log", &log), ("spans", &spans)]
    {
        for (what, hidden) in [("token", token), ("secret", secret)] {
            assert!(
                !text.is_empty() && !text.to_lowercase().contains(&hidden.to_lowercase()),
                "{place} hold the {what}"
            );
        }
        let hexadecimal: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!text.contains(&hexadecimal), "{place} hold the token");
    }
}
