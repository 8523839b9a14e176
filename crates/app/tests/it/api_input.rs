//! Invalid input: each case is refused with a 4xx that describes the error, and the service keeps running.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::http::{Api, Reply, send};
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, World};

const JSON: &str = "application/json";

async fn raw(api: &Api, path: &str, content_type: &str, body: impl Into<reqwest::Body>) -> Reply {
    send(api.request(Method::POST, path).header("content-type", content_type).body(body)).await
}

/// The start of a definition with other fields beside it.
fn start_with(definition: &str, name: &str, value: Value) -> Value {
    json!({ "workflowDefinitionId": definition, name: value })
}

async fn nothing_happened(world: &World, tenant: &Tenant, definition: &str) {
    assert_eq!(world.count("workflow_execution").await, 0, "nothing was accepted");
    let logs = &world.server.process.stderr;
    assert!(!logs.contain("panicked") && !logs.contain(" ERROR "), "{:?}", logs.all());
    tenant.completed(&tenant.start(definition).await).await;
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused() {
    let world = World::with(&["http.max_body_bytes=10000"]).await;
    let tenant = world.tenant("FREE").await;
    let definition = tenant.light().await;
    let good = json!({ "workflowDefinitionId": definition }).to_string();
    let start = "workflow/executions/start";
    for content_type in ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", ""] {
        let reply = raw(&tenant.api, start, content_type, good.clone()).await;
        assert_eq!(reply.problem(415), "unsupported_media_type", "{content_type:?}");
    }
    let deep = format!("{}1{}", "[".repeat(3_000), "]".repeat(3_000));
    let with = |input: &str| format!("{{\"workflowDefinitionId\":\"{definition}\",\"input\":{input}}}");
    for body in [
        String::new(),
        "{".to_owned(),
        "nonsense".to_owned(),
        format!("\u{feff}{good}"),
        format!("{good} {good}"),
        with(&deep),
        with("NaN"),
        with("1e400"),
        with("\"\\ud800\""),
        with("\"\\x\""),
        with("\"a\u{0}b\""),
    ] {
        let reply = raw(&tenant.api, start, JSON, body.clone()).await;
        assert_eq!(reply.problem(400), "validation_failed", "{}", &body[..body.len().min(100)]);
    }
    assert_eq!(raw(&tenant.api, start, JSON, vec![b'"', 0xff, b'"']).await.problem(400), "validation_failed");
    let large = with(&format!("\"{}\"", "x".repeat(10_000)));
    assert_eq!(raw(&tenant.api, start, JSON, large.clone()).await.problem(413), "payload_too_large");
    let chunks: Vec<Result<String, std::io::Error>> = vec![Ok(large)];
    let stream = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    assert_eq!(raw(&tenant.api, start, JSON, stream).await.problem(413), "payload_too_large", "without a length");
    nothing_happened(&world, &tenant, &definition).await;
}

#[tokio::test]
async fn a_field_that_cannot_be_accepted_is_named() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let definition = tenant.light().await;
    let start = "workflow/executions/start";
    for (body, pointer) in [
        (json!([]), ""),
        (json!({}), ""),
        (json!({ "workflowDefinitionId": "not-an-id" }), "/workflowDefinitionId"),
        (json!({ "workflowDefinitionId": 7 }), "/workflowDefinitionId"),
        (json!({ "workflowDefinitionId": format!("{}0", "a".repeat(10_000)) }), "/workflowDefinitionId"),
        (start_with(&definition, "workspaceId", json!("x")), "/workspaceId"),
        (start_with(&definition, "priority", json!(9)), "/priority"),
        (start_with(&definition, "priority", json!("high")), "/priority"),
        (start_with(&definition, "priority", json!(9_223_372_036_854_775_808_u64)), "/priority"),
        (start_with(&definition, "runAt", json!("tomorrow")), "/runAt"),
        (start_with(&definition, "runAt", json!("292000000-01-01T00:00:00Z")), "/runAt"),
        (start_with(&definition, "surprise", json!(1)), "/surprise"),
    ] {
        let reply = tenant.api.post(start, body.clone()).await;
        assert_eq!(reply.problem(422), "validation_failed", "{body}");
        assert_eq!(reply.body["problems"][0]["pointer"], pointer, "{body}: {}", reply.text);
    }
    for (name, value) in [
        ("input", json!("a\u{0}b")),
        ("input", json!({ "a\u{0}b": 1 })),
        ("concurrencyKey", json!("a\u{0}b")),
        ("concurrencyKey", json!("")),
        ("concurrencyKey", json!("k".repeat(201))),
        ("runAt", json!("-009999-01-01T00:00:00Z")),
        ("runAt", json!("0000-01-01T00:00:00Z")),
        ("runAt", json!("9999-12-30T00:00:00Z")),
    ] {
        let reply = tenant.api.post(start, start_with(&definition, name, value.clone())).await;
        if reply.status == 202 {
            // What is accepted can also be looked at.
            let id = text(&reply.body["executionId"]);
            tenant.execution(&id).await;
            tenant.queue(&id).await;
            world.run_sql(&format!("DELETE FROM execution_queue WHERE id = '{id}'")).await;
            world.run_sql(&format!("DELETE FROM workflow_execution WHERE id = '{id}'")).await;
        } else {
            assert_eq!(reply.problem(422), "validation_failed", "{name} {value}");
        }
    }
    nothing_happened(&world, &tenant, &definition).await;
}

#[tokio::test]
async fn parameters_and_names_are_checked() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let definition = tenant.light().await;
    let id = tenant.start(&definition).await;
    tenant.completed(&id).await;
    for wait in ["5", "abc", "-1s", "1y", "", "%00", "99999999999999999999999999s"] {
        let reply = tenant.api.get(&format!("workflow/executions/{id}?wait={wait}")).await;
        assert_eq!(reply.problem(422), "validation_failed", "wait={wait}");
    }
    for query in ["waiting=1s", "wait=1s&wait=2s", "x"] {
        let reply = tenant.api.get(&format!("workflow/executions/{id}?{query}")).await;
        assert_eq!(reply.problem(400), "validation_failed", "{query}");
    }
    let root = world.server.api();
    for query in ["after=x", "limit=many", "limit=99999999999999999999", "surprise=1", "cursor=a&cursor=b"] {
        assert_eq!(root.get(&format!("workspaces?{query}")).await.problem(400), "validation_failed", "{query}");
    }
    for query in ["limit=0", "limit=-5", "limit=201", "limit=9223372036854775807", "cursor=x", "cursor="] {
        assert_eq!(root.get(&format!("workspaces?{query}")).await.problem(422), "validation_failed", "{query}");
    }
    assert_eq!(root.get("workspaces?name=%00").await.problem(422), "validation_failed");
    let long = "n".repeat(201);
    for name in ["", " a", "a ", "a\nb", "a\u{0}b", "\u{1b}[2J", long.as_str()] {
        for (api, path, body) in [
            (&root, "workspaces", json!({ "name": name })),
            (&tenant.api, "keys", json!({ "name": name })),
            (&tenant.api, "workflow/definitions", json!({ "name": name, "document": { "nodes": {} } })),
        ] {
            assert_eq!(api.post(path, body).await.problem(422), "validation_failed", "{path} {name:?}");
        }
    }
    for body in [
        json!({ "name": "a", "tier": "GOLD" }),
        json!({ "name": "a", "tier": "" }),
        json!({ "name": "a", "limit": -1 }),
        json!({ "name": "a", "limit": 1_000_000 }),
        json!({ "name": "a", "weight": 0 }),
        json!({ "name": "a", "weight": 100_000 }),
        json!({ "name": "a", "paused": true }),
    ] {
        assert_eq!(root.post("workspaces", body.clone()).await.problem(422), "validation_failed", "{body}");
    }
    let patch = root.patch(&format!("workspaces/{}", tenant.id), json!({ "tier": "GOLD" })).await;
    assert_eq!(patch.problem(422), "validation_failed");
    let again = root.post("workspaces", json!({ "name": tenant.name })).await;
    assert_eq!(again.problem(409), "conflict", "a workspace of that name is there");
    let again = tenant.api.post("workflow/definitions", json!({ "document": { "name": "light", "nodes": {} } })).await;
    assert_eq!(again.problem(409), "conflict", "a definition of that name is there");
    let logs = &world.server.process.stderr;
    assert!(!logs.contain("panicked") && !logs.contain(" ERROR "), "{:?}", logs.all());
}

#[tokio::test]
async fn a_definition_is_refused_with_every_problem_it_has() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let document = json!({ "name": "bad", "surprise": 1, "nodes": {
        "a": { "kind": "LOG", "needs": "b", "with": { "message": "${{ nodes.nobody.output }}" } },
        "b": { "kind": "LOG", "needs": "a", "with": { "message": "x" } },
        "c": { "kind": "NO_SUCH_KIND" },
        "d": { "kind": "HTTP_REQUEST", "needs": "e", "with": { "url": "ftp://x" } },
    } });
    for path in ["validate", "apply", ""] {
        let path = format!("workflow/definitions/{path}");
        let reply = tenant.api.post(path.trim_end_matches('/'), json!({ "document": document })).await;
        assert_eq!(reply.problem(422), "definition_invalid", "{path}");
        let problems = reply.body["problems"].as_array().expect("a list");
        assert!(problems.len() >= 4, "{}", reply.text);
        assert!(problems.iter().all(|problem| problem["message"].is_string() && problem["pointer"].is_string()));
    }
    let chain = |count: usize| -> Value {
        let node = |n: usize| match n {
            0 => json!({ "kind": "LOG", "with": { "message": "x" } }),
            _ => json!({ "kind": "LOG", "needs": format!("n{}", n - 1), "with": { "message": "x" } }),
        };
        (0..count).map(|n| (format!("n{n}"), node(n))).collect::<serde_json::Map<_, _>>().into()
    };
    for nodes in [chain(10_000), json!("x"), json!({ "a": {} }), json!({ "a": { "kind": "LOG", "needs": "a" } })] {
        let document = json!({ "name": "bad", "nodes": nodes });
        let reply = tenant.api.post("workflow/definitions/validate", json!({ "document": document })).await;
        assert!(["definition_invalid", "validation_failed"].contains(&reply.problem(422)), "{}", reply.text);
    }
    assert_eq!(world.count(&tenant, "workflow_definition").await, 0);
}

#[tokio::test]
async fn a_large_body_is_taken_if_allowed_and_a_slow_one_or_a_long_wait_is_cut_short() {
    let world = World::with(&["http.max_body_bytes=4000000"]).await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let body = start_with(&held, "input", json!("x".repeat(2_200_000)));
    let id = text(&tenant.api.post("workflow/executions/start", body).await.expect(202)["executionId"]);
    world.receiver.until_called("/hold/a", 1).await;
    let hasty = world.another(&["http.request_timeout_ms=8000"]).await;
    let tenant = tenant.at(&hasty.base);
    let waited = tenant.api.get(&format!("workflow/executions/{id}?wait=60s")).await.expect(200);
    assert_eq!(waited["status"], "RUNNING", "no longer than a request may take");

    let address = tenant.api.base.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let key = tenant.api.key.as_deref().expect("a key");
    let head = format!(
        "POST /api/v1/workflow/executions/start HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.expect("written");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("an answer, although the body never comes");
    assert_eq!(&answer, b"HTTP/1.1 400");
}

/// Sends the head of a start whose body has these many bytes, or is sent in chunks.
async fn begin(api: &Api, length: &str) -> tokio::net::TcpStream {
    let address = api.base.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let key = api.key.as_deref().expect("a key");
    let head = format!(
        "POST /api/v1/workflow/executions/start HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\n{length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("written");
    stream
}

#[tokio::test]
async fn a_client_that_still_sends_a_body_that_is_too_large_gets_its_answer() {
    let world = World::with(&["http.max_body_bytes=10000"]).await;
    let tenant = world.tenant("FREE").await;
    let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
    let cases = [("content-length: 2097152", vec![b'x'; 0x10000]), ("transfer-encoding: chunked", chunk)];
    for (length, part) in cases {
        let mut stream = begin(&tenant.api, length).await;
        stream.write_all(&part).await.expect("written");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 413", "{length}");
        for _ in 1..32 {
            stream.write_all(&part).await.expect("the rest is read");
        }
        if length.ends_with("chunked") {
            stream.write_all(b"0\r\n\r\n").await.expect("the end is read");
        }
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.expect("closed, and not reset");
        assert!(rest.ends_with(b"}"), "the whole answer: {}", String::from_utf8_lossy(&rest));
    }
    let mut stream = begin(&tenant.api, "content-length: 1000000000").await;
    let endless = async { while stream.write_all(&[b'x'; 0x10000]).await.is_ok() {} };
    tokio::time::timeout(crate::support::PATIENCE, endless).await.expect("not all of a body without end is read");

    let mut stream = begin(&tenant.api, "content-length: 2097152\r\nexpect: 100-continue").await;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 413", "nobody is asked to send what is not wanted");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_like_everything_else() {
    let world = Shared::new().await;
    let request = world.server.api().request(Method::GET, "workspaces").header("x-long", "x".repeat(70_000));
    let refused = send(request).await;
    assert_eq!(refused.status, 431, "{}", refused.text);
    assert_eq!((refused.header("x-content-type-options"), refused.header("cache-control")), ("nosniff", "no-store"));
}
