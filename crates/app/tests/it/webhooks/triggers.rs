//! Incoming webhooks: a request to a secret address starts its workflow once, with the body as input, and only if the
//! sender is allowed.

use reqwest::Method;
use serde_json::{Value, json};

use super::Scene;
use super::inbox::python;
use crate::support::Tenant;
use crate::support::http::{Api, Reply, send};
use crate::support::tenant::text;

/// Publishes a workflow with this rule; answers its id.
pub(super) async fn apply(tenant: &Tenant, name: &str, rule: Value, inputs: Value) -> String {
    let document = json!({
        "name": name, "inputs": inputs, "on": { "http": rule },
        "nodes": { "say": { "kind": "LOG", "with": { "message": "done" } } },
        "outputs": { "input": "${{ inputs }}", "headers": "${{ trigger.headers }}" },
    });
    let applied = tenant.api.post("workflow/definitions/apply", json!({ "document": document })).await.expect(200);
    text(&applied["definition"]["id"])
}

/// The path of a workflow's address.
pub(super) async fn address(tenant: &Tenant, definition: &str) -> String {
    let made = tenant.api.post("triggers", json!({ "workflowDefinitionId": definition })).await.expect(201);
    text(&made["path"])
}

pub(super) async fn post(api: &Api, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let mut request = api.request(Method::POST, path).body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(request).await
}

pub(super) const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_request_starts_the_workflow_with_its_body_and_the_headers_it_may_see() {
    let scene = Scene::shared().await;
    let definition = apply(&scene.tenant, "take", json!({ "headers": ["X-Event"] }), json!({})).await;
    let path = address(&scene.tenant, &definition).await;
    let anonymous = scene.world.server.anonymous();
    for (kind, body, input) in [
        ("application/json", r#"{"id": "A42", "n": [1]}"#, json!({ "id": "A42", "n": [1] })),
        ("application/json", "[1, 2]", json!({ "body": [1, 2] })),
        ("application/x-www-form-urlencoded", "id=A42&tag=a&tag=b", json!({ "id": "A42", "tag": ["a", "b"] })),
        ("text/plain", "hello", json!({ "body": "hello" })),
    ] {
        let headers = [("content-type", kind), ("x-event", "push"), ("x-other", "unseen")];
        let started = post(&anonymous, &path, &headers, body).await.expect(202);
        let ended = scene.tenant.completed(&text(&started["executionId"])).await;
        assert_eq!(ended["output"], json!({ "input": input, "headers": { "x-event": "push" } }), "{kind}");
        assert_eq!((&ended["trigger"]["type"], &ended["input"]), (&json!("http"), &input));
    }
    let mapped = json!({ "input": { "who": "${{ inputs.user.name }}" } });
    let definition =
        apply(&scene.tenant, "map", mapped, json!({ "who": { "type": "string", "required": true } })).await;
    let path = address(&scene.tenant, &definition).await;
    let started = post(&anonymous, &path, &[JSON], r#"{"user": {"name": "Ada"}}"#).await.expect(202);
    let ended = scene.tenant.completed(&text(&started["executionId"])).await;
    assert_eq!(ended["input"], json!({ "who": "Ada" }));
    let refused = post(&anonymous, &path, &[JSON], r#"{"user": {}}"#).await;
    assert_eq!(refused.problem(422), "validation_failed", "judged like any start");
    assert!(refused.body["problems"][0]["pointer"].is_string(), "{}", refused.text);
}

#[tokio::test]
async fn a_token_that_does_not_open_is_answered_like_an_address_that_does_not_exist() {
    let scene = Scene::own().await;
    let anonymous = scene.world.server.anonymous();
    let definition = apply(&scene.tenant, "take", json!({}), json!({})).await;
    let refused =
        scene.tenant.api.post("triggers", json!({ "workflowDefinitionId": scene.tenant.light().await })).await;
    assert_eq!(refused.problem(409), "conflict", "no file says that it takes any");
    let path = address(&scene.tenant, &definition).await;
    let triggers = scene.tenant.api.get("triggers").await;
    let id = text(&triggers.body["items"][0]["id"]);
    assert!(!triggers.text.contains(&path[10..]), "it is not shown again");
    let second = scene.tenant.api.post("triggers", json!({ "workflowDefinitionId": definition })).await;
    assert_eq!(second.problem(409), "conflict", "it has one: that is a rotation");
    let rotated =
        scene.tenant.api.post(&format!("triggers/{id}/rotate"), json!({ "gracePeriodSeconds": 60 })).await.expect(200);
    let next = text(&rotated["path"]);
    for path in [&path, &next] {
        post(&anonymous, path, &[JSON], "{}").await.expect(202);
    }
    scene.tenant.api.post(&format!("triggers/{id}/rotate"), json!({})).await.expect(200);
    let nowhere = post(&anonymous, "/nowhere", &[JSON], "{}").await;
    assert_eq!(nowhere.problem(404), "not_found");
    let unknown = store::trigger::Token::generate().expect("randomness");
    let unknown = format!("/triggers/{}", unknown.expose());
    let key = scene.tenant.api.key.as_deref().expect("a key");
    let closed = [path.as_str(), &next, &unknown, "/triggers/x", "/triggers/%ff", &format!("/triggers/{key}")];
    let shape = |reply: &Reply| {
        let names: Vec<String> = reply.headers.keys().map(ToString::to_string).collect();
        (reply.status, reply.text.clone(), names)
    };
    for path in closed {
        assert_eq!(shape(&post(&anonymous, path, &[JSON], "{}").await), shape(&nowhere), "{path}");
        // A key of the API opens nothing there.
        assert_eq!(shape(&post(&scene.tenant.api, path, &[JSON], "not read").await), shape(&nowhere), "{path}");
    }
    scene.tenant.api.post(&format!("triggers/{id}/revoke"), json!({})).await.expect(204);
    let again = text(&scene.tenant.api.post(&format!("triggers/{id}/rotate"), json!({})).await.expect(200)["path"]);
    post(&anonymous, &again, &[JSON], "{}").await.expect(202);
    scene.tenant.api.delete(&format!("workflow/definitions/{definition}")).await.expect(204);
    assert_eq!(shape(&post(&anonymous, &again, &[JSON], "{}").await), shape(&nowhere), "its workflow is gone");
    let metrics = anonymous.get("/metrics").await.text;
    assert!(metrics.contains("forebay_trigger_requests_total{outcome=\"unknown\"} "), "{metrics}");
    assert!(metrics.contains("forebay_trigger_requests_total{outcome=\"accepted\"} 3\n"), "{metrics}");
}

/// What a sender puts into its header: computed by other code than ours.
async fn hmac(secret: &str, text: &str) -> String {
    let code = "import hashlib, hmac, json, sys\nkey, text = json.load(sys.stdin)\n\
                print(hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest())";
    python(code, &json!([secret, text]).to_string()).await.expect("python")
}

#[tokio::test]
async fn a_request_that_must_be_signed_is_believed_only_then_and_only_now() {
    let scene = Scene::shared().await;
    let anonymous = scene.world.server.anonymous();
    let rule = json!({ "signature": {
        "header": "X-Sign", "secret": "SENDER", "prefix": "v0=", "timestamp_header": "X-Time", "signed": "v0:{timestamp}:{body}",
    } });
    let definition = apply(&scene.tenant, "signed", rule, json!({})).await;
    let path = address(&scene.tenant, &definition).await;
    let (body, now) = (r#"{"a": 1}"#, jiff::Timestamp::now().as_second());
    let sign = async |time: i64, body: &str| format!("v0={}", hmac("hunter2", &format!("v0:{time}:{body}")).await);
    let ask = async |sign: &str, time: i64, body: &str| {
        post(&anonymous, &path, &[JSON, ("x-sign", sign), ("x-time", &time.to_string())], body).await
    };
    let good = sign(now, body).await;
    assert_eq!(ask(&good, now, body).await.problem(503), "unavailable", "the secret is not set yet");
    let set = format!("workspaces/{}/secrets/SENDER", scene.tenant.id);
    let set = send(scene.tenant.api.request(Method::PUT, &set).json(&json!({ "value": "hunter2" }))).await;
    set.expect(200);
    let started = ask(&good, now, body).await.expect(202);
    for (what, reply) in [
        ("another body", ask(&good, now, r#"{"a": 2}"#).await),
        ("another time", ask(&good, now + 1, body).await),
        ("too old", ask(&sign(now - 400, body).await, now - 400, body).await),
        ("too far ahead", ask(&sign(now + 400, body).await, now + 400, body).await),
        ("no prefix", ask(&good[3..], now, body).await),
        ("nothing", post(&anonymous, &path, &[JSON], body).await),
    ] {
        assert_eq!(reply.problem(401), "unauthenticated", "{what}");
        assert!(!reply.text.contains("hunter2"), "{what}");
    }
    let replayed = ask(&good, now, body).await.expect(202);
    assert_eq!((&replayed["executionId"], &replayed["repeated"]), (&started["executionId"], &json!(true)), "a replay");
    // The same number, spelt otherwise, is not another request.
    let upper = format!("v0={}", good[3..].to_uppercase());
    assert_eq!(ask(&upper, now, body).await.problem(401), "unauthenticated");
    assert_eq!(scene.tenant.api.get("workflow/executions").await.body["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_replay_of_a_signed_request_under_another_idempotency_header_starts_nothing() {
    let scene = Scene::shared().await;
    let anonymous = scene.world.server.anonymous();
    let set = format!("workspaces/{}/secrets/SENDER", scene.tenant.id);
    send(scene.tenant.api.request(Method::PUT, &set).json(&json!({ "value": "hunter2" }))).await.expect(200);
    let timed = json!({ "signature": { "header": "X-Sign", "secret": "SENDER", "timestamp_header": "X-Time" } });
    let path = address(&scene.tenant, &apply(&scene.tenant, "timed", timed, json!({})).await).await;
    let now = jiff::Timestamp::now().as_second().to_string();
    let sign = hmac("hunter2", &format!("{now}.{{}}")).await;
    let ask = async |key: &str| {
        let headers = [JSON, ("x-sign", &sign), ("x-time", &now), ("idempotency-key", key)];
        post(&anonymous, &path, &headers, "{}").await.expect(202)
    };
    let first = ask("d-1").await;
    for key in ["d-2", "d-3"] {
        let replayed = ask(key).await;
        assert_eq!((&replayed["executionId"], &replayed["repeated"]), (&first["executionId"], &json!(true)), "{key}");
    }
    assert_eq!(scene.tenant.api.get("workflow/executions").await.body["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn no_client_may_use_the_key_that_a_trigger_derives() {
    let scene = Scene::shared().await;
    let anonymous = scene.world.server.anonymous();
    let set = format!("workspaces/{}/secrets/SENDER", scene.tenant.id);
    send(scene.tenant.api.request(Method::PUT, &set).json(&json!({ "value": "hunter2" }))).await.expect(200);
    let now = jiff::Timestamp::now().as_second().to_string();
    let timed = json!({ "signature": { "header": "X-Sign", "secret": "SENDER", "timestamp_header": "X-Time" } });
    let named = json!({ "signature": {
        "header": "X-Sign", "secret": "SENDER", "id_header": "X-Id", "signed": "{id}:{body}",
    } });
    for (name, rule, signed) in [
        ("plain", json!({}), String::new()),
        ("timed", timed, format!("{now}.{{}}")),
        ("named", named, "m-1:{}".into()),
    ] {
        let path = address(&scene.tenant, &apply(&scene.tenant, name, rule, json!({})).await).await;
        let sign = hmac("hunter2", &signed).await;
        let headers = [JSON, ("x-sign", &sign), ("x-time", &now), ("x-id", "m-1"), ("idempotency-key", "d-1")];
        post(&anonymous, &path, &headers, "{}").await.expect(202);
    }
    let client = scene.world.database.client().await;
    let keys = "SELECT idempotency_key FROM workflow_execution
        WHERE idempotency_key IS NOT NULL AND workspace_id::text = $1";
    let derived: Vec<String> = client
        .query(keys, &[&scene.tenant.id])
        .await
        .expect("keys")
        .iter()
        .map(|row| row.get::<_, String>(0))
        .collect();
    assert_eq!(derived.len(), 3, "{derived:?}");
    let light = scene.tenant.light().await;
    for key in derived {
        let start = scene.tenant.api.request(Method::POST, "workflow/executions/start");
        let start = start.json(&json!({ "workflowDefinitionId": light })).header("idempotency-key", &key);
        assert_eq!(send(start).await.problem(422), "validation_failed", "{key}");
        let call = format!("SELECT forebay.enqueue('{}', '{light}', idempotency_key => '{key}')", scene.tenant.id);
        let error = client.execute(&call, &[]).await.expect_err("refused");
        assert_eq!(error.code().map(|code| code.code()), Some("23514"), "{key}: {error:?}");
    }
}

#[tokio::test]
async fn a_request_is_taken_once_under_its_header_and_within_its_limits() {
    let scene = Scene::shared().await;
    let anonymous = scene.world.server.anonymous();
    let rule = json!({ "idempotency_header": "X-Delivery", "max_body_bytes": 100, "rate_per_minute": 8 });
    let path = address(&scene.tenant, &apply(&scene.tenant, "take", rule, json!({})).await).await;
    let first = post(&anonymous, &path, &[JSON, ("x-delivery", "d-1")], r#"{"a": 1}"#).await.expect(202);
    let again = post(&anonymous, &path, &[JSON, ("x-delivery", "d-1")], r#"{ "a" : 1 }"#).await.expect(202);
    assert_eq!((&again["executionId"], &again["repeated"]), (&first["executionId"], &json!(true)));
    let other = post(&anonymous, &path, &[JSON, ("x-delivery", "d-1")], r#"{"a": 2}"#).await;
    assert_eq!(other.problem(422), "idempotency_conflict");
    let second = post(&anonymous, &path, &[JSON, ("x-delivery", "d-2")], r#"{"a": 1}"#).await.expect(202);
    assert_ne!(second["executionId"], first["executionId"]);
    // The same key in another trigger, and over the API, is another.
    let beside = address(&scene.tenant, &apply(&scene.tenant, "beside", json!({}), json!({})).await).await;
    let third = post(&anonymous, &beside, &[JSON, ("idempotency-key", "d-1")], r#"{"a": 1}"#).await.expect(202);
    assert_ne!(third["executionId"], first["executionId"]);
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(100));
    assert_eq!(post(&anonymous, &path, &[JSON], &long).await.problem(413), "payload_too_large");
    assert_eq!(post(&anonymous, &path, &[JSON], "{").await.problem(400), "validation_failed");
    let odd = post(&anonymous, &path, &[("content-type", "image/png")], "x").await;
    assert_eq!(odd.problem(415), "unsupported_media_type");
    post(&anonymous, &path, &[JSON], "{}").await.expect(202);
    let full = post(&anonymous, &path, &[JSON], "{}").await;
    assert_eq!(full.problem(429), "rate_limited");
    let wait: u32 = full.header("retry-after").parse().expect("seconds");
    assert!((1..=60).contains(&wait));
    post(&anonymous, &beside, &[JSON], "{}").await.expect(202);
}

#[tokio::test]
async fn guessed_tokens_are_counted_and_limited_by_address_and_a_trigger_in_use_goes_on() {
    let database = store::testing::Database::new().await;
    let server = crate::support::Server::start(&database.url, &["auth.max_failures_per_address=4".to_owned()]).await;
    let tenant = Tenant::new(server.api(), "PRO").await;
    let used = address(&tenant, &apply(&tenant, "used", json!({}), json!({})).await).await;
    let fresh = address(&tenant, &apply(&tenant, "fresh", json!({}), json!({})).await).await;
    let anonymous = server.anonymous();
    post(&anonymous, &used, &[JSON], "{}").await.expect(202);
    let trigger = || format!("/triggers/{}", store::trigger::Token::generate().expect("randomness").expose());
    let answer = || format!("/answers/{}", store::wait::Token::generate().expect("randomness").expose());
    for _ in 0..9 {
        assert_eq!(
            post(&anonymous, "/triggers/x", &[JSON], "{}").await.status,
            404,
            "this cannot be a token: no guess"
        );
    }
    for _ in 0..2 {
        assert_eq!(post(&anonymous, &trigger(), &[JSON], "{}").await.status, 404);
    }
    assert_eq!(anonymous.get(&answer()).await.status, 404);
    assert_eq!(anonymous.post(&answer(), json!({})).await.status, 404);
    for reply in [
        post(&anonymous, &trigger(), &[JSON], "{}").await,
        anonymous.get(&answer()).await,
        post(&anonymous, &fresh, &[JSON], "{}").await,
    ] {
        assert_eq!(reply.problem(429), "rate_limited");
        assert!((1..=60).contains(&reply.header("retry-after").parse::<u32>().expect("seconds")), "{reply:?}");
    }
    post(&anonymous, &used, &[JSON], "{}").await.expect(202);
    let metrics = anonymous.get("/metrics").await.text;
    for (reason, count) in [("unknown", 4), ("rate_limited", 3)] {
        let line = format!("forebay_authentication_failures_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn a_header_that_cannot_be_read_or_came_twice_starts_nothing() {
    let scene = Scene::shared().await;
    let rule = json!({ "headers": ["X-Who"] });
    let path = address(&scene.tenant, &apply(&scene.tenant, "take", rule, json!({})).await).await;
    let anonymous = scene.world.server.anonymous();
    let latin = || reqwest::header::HeaderValue::from_bytes(b"d-\xe9").expect("a value");
    let ask = || anonymous.request(Method::POST, &path).body("{}").header("content-type", "application/json");
    for request in [
        ask().header("idempotency-key", latin()),
        ask().header("idempotency-key", "d-1").header("idempotency-key", "d-2"),
        ask().header("x-who", latin()),
    ] {
        assert_eq!(send(request).await.problem(422), "validation_failed");
    }
    let definition = scene.tenant.light().await;
    let start = |name: &str| {
        let body = json!({ "workflowDefinitionId": definition });
        scene.tenant.api.request(Method::POST, &format!("workflow/{name}")).json(&body)
    };
    let refused = send(start("executions/start").header("idempotency-key", latin())).await;
    assert_eq!(refused.problem(422), "validation_failed");
    let refused = send(start("executions/start").header("idempotency-key", "a").header("idempotency-key", "b")).await;
    assert_eq!(refused.problem(422), "validation_failed");
    assert_eq!(scene.tenant.api.get("workflow/executions").await.body["items"].as_array().map(Vec::len), Some(0));
    // UTF-8 is text, and a parameter that is none does not make JSON anything else.
    let kind = reqwest::header::HeaderValue::from_bytes(b"application/json; x=\xe9").expect("a value");
    let request = anonymous.request(Method::POST, &path).body(r#"{"a": 1}"#).header("content-type", kind);
    let who = reqwest::header::HeaderValue::from_bytes("Ren\u{e9}".as_bytes()).expect("a value");
    let started = send(request.header("x-who", who)).await.expect(202);
    let ended = scene.tenant.completed(&text(&started["executionId"])).await;
    assert_eq!(ended["output"], json!({ "input": { "a": 1 }, "headers": { "x-who": "Ren\u{e9}" } }));
}

#[tokio::test]
async fn what_one_service_sends_another_takes_once() {
    let database = store::testing::Database::new().await;
    let receiver = crate::support::Server::start(&database.url, &[crate::secrets::KEY.to_owned()]).await;
    let tenant = Tenant::new(receiver.api(), "PRO").await;
    let rule = json!({ "signature": { "scheme": "standard_webhooks", "secret": "SENDER" } });
    let path = address(&tenant, &apply(&tenant, "reported", rule, json!({})).await).await;
    let sender_database = store::testing::Database::new().await;
    let host = receiver.base.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let settings = [crate::secrets::KEY.to_owned(), format!("outbound.allow={host}")];
    let sender = crate::support::Server::start(&sender_database.url, &settings).await;
    let telling = Tenant::new(sender.api(), "PRO").await;
    let url = format!("{}{path}", receiver.base.trim_end_matches('/'));
    let made = telling.api.post("webhooks", json!({ "url": url })).await.expect(201);
    let webhook = text(&made["webhook"]["id"]);
    let set = format!("workspaces/{}/secrets/SENDER", tenant.id);
    send(tenant.api.request(Method::PUT, &set).json(&json!({ "value": made["secret"] }))).await.expect(200);

    let observed = telling.start(&telling.light().await).await;
    let deliveries = format!("webhooks/{webhook}/deliveries");
    let delivery = crate::support::until("it is delivered", async || {
        let page = telling.api.get(&deliveries).await.expect(200);
        let found =
            page["items"].as_array().expect("a list").iter().find(|item| item["status"] == "DELIVERED").cloned();
        found.map(|item| (text(&item["id"]), item["attempts"].clone()))
    })
    .await;
    let list = tenant.api.get("workflow/executions").await.expect(200);
    let started = list["items"].as_array().expect("a list").clone();
    assert_eq!(started.len(), 1);
    let ended = tenant.completed(&text(&started[0]["id"])).await;
    assert_eq!(ended["input"]["data"]["executionId"], json!(observed));
    // Sent again under the same id, it is known.
    telling.api.post(&format!("{deliveries}/{}/retry", delivery.0), json!({})).await.expect(202);
    crate::support::until("it is delivered again", async || {
        let page = telling.api.get(&deliveries).await.expect(200);
        let item = page["items"].as_array().expect("a list").first().cloned().expect("one");
        (item["status"] == "DELIVERED" && item["attempts"] != delivery.1).then_some(())
    })
    .await;
    let list = tenant.api.get("workflow/executions").await.expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "one message, one execution");
}
