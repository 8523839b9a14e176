//! Hostile input: each case is refused with a 4xx and a problem, and nothing of it is stored or logged. The most
//! similar valid input succeeds.

use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::http::{Api, Reply, send};
use crate::support::{Tenant, World};

const START: &str = "workflow/executions/start";
const BULK: &str = "workflow/executions/bulk";
const VALIDATE: &str = "workflow/definitions/validate";
const CREATE: &str = "workflow/definitions";

/// A request, by how it is written.
#[derive(Clone)]
struct Request {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    fn get(path: impl Into<String>) -> Request {
        Request { method: Method::GET, path: path.into(), headers: Vec::new(), body: None }
    }

    fn post(path: &str, body: impl Into<Vec<u8>>) -> Request {
        let headers = vec![("content-type", "application/json".to_owned())];
        Request { method: Method::POST, path: path.to_owned(), headers, body: Some(body.into()) }
    }

    fn json(path: &str, body: &Value) -> Request {
        Request::post(path, body.to_string())
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Request {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
        self
    }

    async fn send(&self, api: &Api) -> Reply {
        let mut request = api.request(self.method.clone(), &self.path);
        for (name, value) in &self.headers {
            request = request.header(*name, value.as_bytes());
        }
        send(match &self.body {
            Some(body) => request.body(body.clone()),
            None => request,
        })
        .await
    }
}

/// A name, what must be refused with which status, and what must succeed.
type Case = (String, Request, u16, Request);

/// Sends what is bad, looks that nothing changed, and sends the neighbours.
async fn check(world: &World, api: &Api, cases: Vec<Case>) {
    let before = world.everything().await;
    for (name, bad, status, _) in &cases {
        let reply = bad.send(api).await;
        assert_eq!(reply.status, *status, "{name}: {}", &reply.text[..reply.text.len().min(400)]);
        reply.problem(*status);
        assert!(reply.text.len() < 20_000, "{name}: what was sent is not sent back at length");
    }
    assert_eq!(world.everything().await, before, "nothing of it was stored");
    for (name, _, _, good) in &cases {
        let reply = good.send(api).await;
        assert!((200..300).contains(&reply.status), "{name}: its neighbour: {}", reply.text);
    }
    let logs = &world.server.process.stderr;
    assert!(!logs.contain("panicked") && !logs.contain(" ERROR "), "{:?}", logs.all());
}

async fn tenant(world: &World) -> (Tenant, String) {
    let tenant = world.tenant("ENTERPRISE").await;
    let definition = tenant.light().await;
    (tenant, definition)
}

/// A name, a body to be refused, with which status, a body to be taken.
type Bodies = (&'static str, String, u16, String);

fn start(definition: &str, input: &str) -> String {
    format!("{{\"workflowDefinitionId\":\"{definition}\",\"input\":{input}}}")
}

/// Texts that are no JSON, or are it in more than one way.
fn unreadable(definition: &str) -> Vec<Bodies> {
    let start = |input: &str| start(definition, input);
    let nested = |depth: usize| start(&format!("{}1{}", "[".repeat(depth), "]".repeat(depth)));
    let long = |length: usize| start(&format!("\"{}\"", "x".repeat(length)));
    let good = start("1");
    vec![
        ("depth 10,000", nested(10_000), 400, nested(60)),
        ("a string as large as the body may be", long(100_000), 413, long(90_000)),
        ("a field twice", good.replace("{\"", "{\"input\":2,\""), 400, good.clone()),
        ("a field twice, inside", start("{\"a\":1,\"a\":2}"), 400, start("{\"a\":1,\"b\":2}")),
        ("1e400", start("1e400"), 400, start("1e300")),
        ("NaN", start("NaN"), 400, start("\"NaN\"")),
        ("Infinity", start("-Infinity"), 400, start("-1")),
        ("a lone surrogate", start("\"\\ud800\""), 400, start("\"\\ud83d\\ude00\"")),
        ("a raw control character", start("\"a\u{0}b\""), 400, start("\"a b\"")),
        ("a byte order mark", format!("\u{feff}{good}"), 400, format!(" \n{good}")),
        ("something behind it", format!("{good}]"), 400, format!("{good} ")),
        ("two of them", format!("{good}{good}"), 400, good.clone()),
        ("a comment", format!("/* */{good}"), 400, good.clone()),
        ("a single quote", good.replace('"', "'"), 400, good.clone()),
        ("a trailing comma", good.replace('}', ",}"), 400, good.clone()),
        ("nothing", String::new(), 400, good),
    ]
}

/// JSON that says what cannot be.
fn unacceptable(definition: &str) -> Vec<Bodies> {
    let start = |input: &str| start(definition, input);
    let beside = |field: &str, value: &str| start(&format!("1,\"{field}\":{value}"));
    let at = |time: &str| beside("runAt", &format!("\"{time}\""));
    let good = start("1");
    vec![
        ("2^63 where a small number is", beside("priority", "9223372036854775808"), 422, start("9223372036854775808")),
        ("an escaped NUL", start("\"a\\u0000b\""), 422, start("\"a\\u0001b\"")),
        ("a NUL in a name", start("{\"a\\u0000\":1}"), 422, start("{\"a\\u0001\":1}")),
        ("an array", "[]".to_owned(), 422, good.clone()),
        ("a list of the fields' values", format!("[\"{definition}\"]"), 422, good.clone()),
        ("null", "null".to_owned(), 422, good),
        ("an unknown field", beside("__proto__", "{}"), 422, start("{\"__proto__\":{}}")),
        ("a priority of 0", beside("priority", "0"), 422, beside("priority", "1")),
        ("a priority of 1.5", beside("priority", "1.5"), 422, beside("priority", "5")),
        ("a key of nothing", beside("concurrencyKey", "\"\""), 422, beside("concurrencyKey", "\"k\"")),
        ("year 292,000,000", at("292000000-01-01T00:00:00Z"), 422, at("2098-01-01T00:00:00Z")),
        ("year 9999", at("9999-12-30T00:00:00Z"), 422, at("9000-12-30T00:00:00Z")),
        ("the 30th of February", at("2098-02-30T00:00:00Z"), 422, at("2098-02-28T00:00:00Z")),
        ("a time of nowhere", at("2098-01-01T00:00:00"), 422, at("2098-01-01T00:00:00+02:00")),
    ]
}

#[tokio::test]
async fn json_that_cannot_be_read_or_means_two_things() {
    let world = World::with(&["http.max_body_bytes=100000"]).await;
    let (tenant, definition) = tenant(&world).await;
    let bodies = unreadable(&definition).into_iter().chain(unacceptable(&definition));
    let mut cases: Vec<Case> = bodies
        .map(|(name, bad, status, good)| {
            (name.to_owned(), Request::post(START, bad), status, Request::post(START, good))
        })
        .collect();
    let plain = Request::post(START, start(&definition, "1"));
    cases.push(("bytes that are no text".to_owned(), Request::post(START, vec![b'"', 0xff, b'"']), 400, plain.clone()));
    for wrong in
        ["text/plain", "multipart/form-data; boundary=x", "application/jsonx", "application/x-www-form-urlencoded", ""]
    {
        let neighbour = plain.clone().with("content-type", "application/json; charset=utf-8");
        cases.push((format!("content type {wrong:?}"), plain.clone().with("content-type", wrong), 415, neighbour));
    }
    for encoding in ["gzip", "deflate", "br, gzip"] {
        let neighbour = plain.clone().with("content-encoding", "identity");
        cases.push((format!("packed by {encoding}"), plain.clone().with("content-encoding", encoding), 415, neighbour));
    }
    check(&world, &tenant.api, cases).await;
}

/// Parameters of the list of executions to be refused, with which status, and to be taken.
const QUERIES: &[(&str, u16, &str)] = &[
    ("limit=0", 422, "limit=1"),
    ("limit=201", 422, "limit=200"),
    ("limit=-1", 422, "limit=7"),
    ("limit=1.5", 400, "limit=2"),
    ("limit=1&limit=2", 400, "limit=1"),
    ("limit=99999999999999999999", 400, "limit=50"),
    ("cursor=", 422, "limit=50"),
    ("cursor=%00", 422, "limit=50"),
    ("cursor=0100", 422, "limit=50"),
    ("status=DONE", 422, "status=COMPLETED"),
    ("status=COMPLETED,", 422, "status=COMPLETED,FAILED"),
    ("status=completed", 422, "status=RUNNING"),
    ("text=", 422, "text=%25"),
    ("text=%00", 422, "text=%01"),
    ("definition=%00", 422, "definition=%E2%80%AE"),
    ("createdAfter=yesterday", 400, "createdAfter=2020-01-01T00:00:00Z"),
    ("createdAfter=292000000-01-01T00:00:00Z", 400, "createdAfter=9000-01-01T00:00:00Z"),
    ("createdBefore=-006000-01-01T00:00:00Z", 422, "createdBefore=-004000-01-01T00:00:00Z"),
    ("workspaceId=1", 400, "limit=50"),
    ("surprise=1", 400, "limit=50"),
];

#[tokio::test]
async fn ids_parameters_and_headers_that_name_nothing() {
    let world = World::new().await;
    let (tenant, definition) = tenant(&world).await;
    let execution = tenant.start(&definition).await;
    tenant.completed(&execution).await;
    let of = |id: &str| Request::get(format!("workflow/executions/{id}"));
    let mut cases: Vec<Case> = Vec::new();
    let long = "a".repeat(10_000);
    let cut = &execution[..35];
    for id in [
        "%00",
        "..%2f..%2fhealthz",
        "null",
        "-1",
        "0",
        "%F0%9F%98%80",
        "'%20OR%201=1--",
        cut,
        &long,
        "00000000-0000-4000-8000-000000000000",
    ] {
        cases.push((format!("id {:.20}", id), of(id), 404, of(&execution)));
        cases.push((
            format!("queue {:.20}", id),
            Request::get(format!("workflow/queue/{id}")),
            404,
            of(&execution.to_uppercase()),
        ));
    }
    let list = |query: &str| Request::get(format!("workflow/executions?{query}"));
    for (bad, status, good) in QUERIES {
        cases.push(((*bad).to_owned(), list(bad), *status, list(good)));
    }
    let text = format!("text={}", "x".repeat(201));
    cases.push(("a long text".to_owned(), list(&text), 422, list(&text[..205])));
    let start = Request::json(START, &json!({ "workflowDefinitionId": definition }));
    for (n, bad) in [String::new(), " ".to_owned(), "k".repeat(201), "ké".to_owned()].into_iter().enumerate() {
        let good = start.clone().with("idempotency-key", format!("{}{n}", "k".repeat(199)));
        cases.push((format!("idempotency key {n}"), start.clone().with("idempotency-key", bad), 422, good));
    }
    check(&world, &tenant.api, cases).await;
}

/// Parameters of the dead letter to be refused, with which status; each without them is taken.
const DEAD_LETTERS: &[(&str, u16)] = &[
    ("", 422),
    ("status=PENDING", 422),
    ("status=failed", 400),
    ("status=FAILED,FAILED", 400),
    ("status=FAILED&limit=0", 422),
    ("status=FAILED&limit=201", 422),
    ("status=FAILED&cursor=00", 422),
    ("status=FAILED&after=00000000-0000-4000-8000-000000000000", 400),
    ("status=FAILED&workflowDefinitionId=1", 400),
];

/// Bodies of a bulk to be refused as a whole, beside the nearest that is taken.
fn bulks(item: &str) -> Vec<Bodies> {
    let bulk = |items: &[&str]| format!("{{\"items\":[{}]}}", items.join(","));
    let good = bulk(&[item]);
    vec![
        ("no items", bulk(&[]), 422, good.clone()),
        ("1,001 items", bulk(&[item; 1_001]), 422, bulk(&[item; 1_000])),
        ("no list of items", "{}".to_owned(), 422, good.clone()),
        ("items of null", "{\"items\":null}".to_owned(), 422, good.clone()),
        ("items that are one", format!("{{\"items\":{item}}}"), 422, good.clone()),
        ("the list alone", format!("[{item}]"), 422, good.clone()),
        ("a field beside them", good.replace("{\"items\"", "{\"all\":true,\"items\""), 422, good.clone()),
        ("items twice", good.replace("{\"items\"", "{\"items\":[],\"items\""), 400, good.clone()),
        ("an item with a field twice", bulk(&["{\"a\":1,\"a\":1}"]), 400, good.clone()),
        ("an item with a NUL", bulk(&["\"a\\u0000\""]), 422, good),
    ]
}

/// Bodies of a rerun.
fn reruns() -> Vec<Bodies> {
    let table = [
        ("from nowhere", "{\"from\":\"nowhere\"}", "{\"from\":\"start\"}"),
        ("from where it failed, not yet", "{\"from\":\"failed\"}", "{}"),
        ("from a node, not yet", "{\"from\":\"node\"}", "{}"),
        ("from in capitals", "{\"from\":\"START\"}", "{\"from\":\"start\"}"),
        ("from of null", "{\"from\":null}", "{\"input\":null}"),
        ("from a number", "{\"from\":0}", "{\"input\":0}"),
        ("a version by its number", "{\"version\":1}", "{\"version\":\"same\"}"),
        ("a version that is none", "{\"version\":\"newest\"}", "{\"version\":\"latest\"}"),
        ("a field that is none", "{\"priority\":1}", "{\"input\":{\"priority\":1}}"),
        ("an input with a NUL", "{\"input\":\"\\u0000\"}", "{\"input\":\"\\u0001\"}"),
        ("a list", "[\"start\"]", "{}"),
        ("null", "null", "{}"),
    ];
    table.map(|(name, bad, good)| (name, bad.to_owned(), 422, good.to_owned())).to_vec()
}

#[tokio::test]
async fn control_that_makes_no_sense() {
    let world = World::with(&["http.max_body_bytes=100000"]).await;
    let (tenant, definition) = tenant(&world).await;
    let execution = tenant.start(&definition).await;
    tenant.completed(&execution).await;
    let of = |path: &str, bodies: Vec<Bodies>| -> Vec<Case> {
        let case = |(name, bad, status, good): Bodies| {
            (format!("{path}: {name}"), Request::post(path, bad), status, Request::post(path, good))
        };
        bodies.into_iter().map(case).collect()
    };
    let rerun = format!("workflow/executions/{execution}/rerun");
    let mut cases = of(BULK, bulks(&start(&definition, "1")));
    cases.extend(of(&rerun, reruns()));
    let dead_letters = |query: &str| Request::get(format!("workflow/queue?{query}"));
    for (bad, status) in DEAD_LETTERS {
        cases.push((format!("dead letters {bad:?}"), dead_letters(bad), *status, dead_letters("status=FAILED")));
    }
    let bulk = Request::post(BULK, format!("{{\"items\":[{}]}}", start(&definition, "1")));
    for (path, good) in [(BULK, bulk), (rerun.as_str(), Request::post(&rerun, "{}"))] {
        for (n, bad) in [String::new(), "k".repeat(201), "ké".to_owned()].into_iter().enumerate() {
            let taken = good.clone().with("idempotency-key", format!("{path:.30}{n}"));
            cases.push((format!("{path}: key {n}"), good.clone().with("idempotency-key", bad), 422, taken));
        }
        let plain = good.clone().with("content-type", "text/plain");
        cases.push((format!("{path}: plain text"), plain, 415, good));
    }
    let post = |path: &str| Request { method: Method::POST, ..Request::get(path) };
    let paused = format!("workflow/definitions/{definition}/pause");
    let terminated = format!("workflow/executions/{execution}/terminate");
    for (bad, good) in [
        ("workflow/definitions/%00/pause", paused.as_str()),
        ("workflow/definitions/00000000-0000-4000-8000-000000000000/pause", &paused),
        ("workflow/executions/-1/terminate", &terminated),
        ("workflow/executions/null/rerun", &terminated),
        ("workflow/queue/%F0%9F%98%80/dismiss", &terminated),
        ("workspaces/0/pause", &terminated),
    ] {
        let bad = if bad.ends_with("rerun") { Request::post(bad, "{}") } else { post(bad) };
        cases.push((bad.path.clone(), bad, 404, post(good)));
    }
    check(&world, &tenant.api, cases).await;
}

/// The response for one item of a bulk request: its status and its problem's code.
fn item_outcome(item: &Value) -> (u64, &str) {
    (item["status"].as_u64().unwrap_or_default(), item["problem"]["code"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn an_item_that_cannot_be_started_has_its_own_error_and_its_neighbour_starts() {
    let world = World::new().await;
    let (tenant, definition) = tenant(&world).await;
    let good = |more: &str| format!("{{\"workflowDefinitionId\":\"{definition}\"{more}}}");
    let invalid = (422, "validation_failed");
    let table = [
        ("1", invalid),
        ("null", invalid),
        ("[]", invalid),
        ("{}", invalid),
        ("{\"workflowDefinitionId\":1}", invalid),
        ("{\"workflowDefinitionId\":\"x\"}", invalid),
        (&good(",\"priority\":0"), invalid),
        (&good(",\"priority\":\"high\""), invalid),
        (&good(",\"runAt\":\"soon\""), invalid),
        (&good(",\"runAt\":\"9999-12-30T00:00:00Z\""), invalid),
        (&good(",\"concurrencyKey\":\"\""), invalid),
        (&good(",\"items\":[]"), invalid),
        ("{\"workflowDefinitionId\":\"00000000-0000-4000-8000-000000000000\"}", (404, "not_found")),
        (&good(",\"workspaceId\":\"00000000-0000-4000-8000-000000000000\""), (403, "workspace_mismatch")),
    ];
    let bad = table.iter().map(|(item, _)| *item).collect::<Vec<_>>().join(",");
    let before = world.everything().await;
    let reply = Request::post(BULK, format!("{{\"items\":[{bad}]}}")).send(&tenant.api).await.expect(200);
    let items = reply["items"].as_array().expect("answers");
    assert_eq!(items.iter().map(item_outcome).collect::<Vec<_>>(), table.map(|(_, observed)| observed), "{reply}");
    assert_eq!(world.everything().await, before, "nothing of it was stored");
    let mixed: Vec<String> = table.iter().flat_map(|(bad, _)| [(*bad).to_owned(), good("")]).collect();
    let mixed = format!("{{\"items\":[{}]}}", mixed.join(","));
    let reply = Request::post(BULK, mixed).send(&tenant.api).await.expect(200);
    let items = reply["items"].as_array().expect("answers");
    let expected: Vec<(u64, &str)> = table.iter().flat_map(|(_, observed)| [*observed, (202, "")]).collect();
    assert_eq!(items.iter().map(item_outcome).collect::<Vec<_>>(), expected, "{reply}");
    assert_eq!(world.count("workflow_execution").await, i64::try_from(table.len()).expect("a number"));
}

fn log(needs: Option<&str>) -> Value {
    let mut node = json!({ "kind": "LOG", "with": { "message": "x" } });
    if let Some(needs) = needs {
        node["needs"] = json!(needs);
    }
    node
}

fn numbered(count: usize, needs: impl Fn(usize) -> Option<String>) -> Value {
    (0..count).map(|n| (format!("n{n}"), log(needs(n).as_deref()))).collect::<Map<_, _>>().into()
}

#[tokio::test]
async fn graphs_that_are_none() {
    let world = World::with(&["http.max_body_bytes=4000000"]).await;
    let (tenant, _) = tenant(&world).await;
    let chain = |count| numbered(count, |n| n.checked_sub(1).map(|before| format!("n{before}")));
    let wide = |count| numbered(count, |n| (n > 0).then(|| "n0".to_owned()));
    let message =
        |text: &str| json!({ "a": log(None), "b": { "kind": "LOG", "needs": "a", "with": { "message": text } } });
    let header = |value: &str| json!({ "a": { "kind": "HTTP_REQUEST", "with": { "url": "https://example.test", "headers": { "x": value } } } });
    let url = |url: &str| json!({ "a": { "kind": "HTTP_REQUEST", "with": { "url": url } } });
    let table = [
        (
            "a cycle",
            json!({ "a": log(Some("b")), "b": log(Some("a")) }),
            json!({ "a": log(None), "b": log(Some("a")) }),
        ),
        ("a node that needs itself", json!({ "a": log(Some("a")) }), json!({ "a": log(None) })),
        ("a node that is not there", json!({ "a": log(Some("b")) }), json!({ "b": log(None), "a": log(Some("b")) })),
        (
            "an edge twice",
            json!({ "a": log(None), "b": { "kind": "LOG", "needs": ["a", "a"], "with": { "message": "x" } } }),
            json!({ "a": log(None), "b": { "kind": "LOG", "needs": ["a"], "with": { "message": "x" } } }),
        ),
        (
            "a part of its own",
            json!({ "a": log(None), "b": log(None) }),
            json!({ "a": log(None), "b": log(Some("a")) }),
        ),
        ("10,000 nodes", numbered(10_000, |_| None), wide(999)),
        ("10,000 after one", wide(10_000), wide(400)),
        ("a chain of 5,000", chain(5_000), chain(400)),
        ("nodes that are none", json!([1]), json!({ "a": log(None) })),
        ("a kind that is none", json!({ "a": { "kind": "SHELL" } }), json!({ "a": log(None) })),
        ("a name with a slash", json!({ "a/../b": log(None) }), json!({ "a-b": log(None) })),
        ("a name of nothing", json!({ "": log(None) }), json!({ "_": log(None) })),
        ("a name of 65 letters", json!({ "a".repeat(65): log(None) }), json!({ "a".repeat(64): log(None) })),
        ("a template of an unknown node", message("${{ nodes.c.output }}"), message("${{ nodes.a.output }}")),
        ("a template of itself", message("${{ nodes.b.output }}"), message("${{ nodes.a.output.message }}")),
        ("a template without an end", message("${{ nodes.a.output"), message("$ { nodes.a.output")),
        (
            "a template in a template",
            message("${{ ${{ nodes.a.output }} }}"),
            message("${{ nodes.a.output }} ${{ nodes.a.output }}"),
        ),
        ("a header of two lines", header("a\r\nb: c"), header("a b: c")),
        ("a file", url("file:///etc/passwd"), url("https://example.test/etc/passwd")),
        ("a user in an address", url("ftp://a@example.test"), url("http://example.test")),
    ];
    let document = |nodes: &Value| json!({ "document": { "name": "g", "nodes": nodes } });
    let case = |(name, bad, good): &(&str, Value, Value)| {
        ((*name).to_owned(), Request::json(VALIDATE, &document(bad)), 422, Request::json(VALIDATE, &document(good)))
    };
    check(&world, &tenant.api, table.iter().map(case).collect()).await;
    let before = world.everything().await;
    for (name, bad, _) in &table {
        assert_eq!(tenant.api.post(CREATE, document(bad)).await.status, 422, "{name}");
    }
    assert_eq!(world.everything().await, before, "and none is stored");
}

#[tokio::test]
async fn names_that_look_like_others_and_texts_that_are_only_texts() {
    let world = World::new().await;
    let (tenant, _) = tenant(&world).await;
    let named = |name: &str| Request::json("keys", &json!({ "name": name }));
    let table = [
        ("written backwards", "a\u{202e}b", "a-b"),
        ("isolated", "a\u{2066}b", "a b"),
        ("a space without width", "a\u{200b}b", "👩\u{200d}🚀"),
        ("a byte order mark", "\u{feff}a", "é"),
        ("an escape sequence", "\u{1b}[2J", "[2J"),
        ("two lines", "a\r\nb", "<script>alert(1)</script>"),
        ("a deletion", "a\u{7f}b", "=1+1"),
        ("a space in front", " a", "'; DROP TABLE workspace; --"),
        ("nothing", "", "a"),
    ];
    let mut cases: Vec<Case> =
        table.iter().map(|(name, bad, good)| ((*name).to_owned(), named(bad), 422, named(good))).collect();
    cases.push(("201 characters".to_owned(), named(&"é".repeat(201)), 422, named(&"é".repeat(200))));
    check(&world, &tenant.api, cases).await;
    let shown = tenant.api.get("keys").await.expect(200);
    let kept =
        |name: &str| shown["items"].as_array().is_some_and(|items| items.iter().any(|item| item["name"] == name));
    assert!(table.iter().all(|(_, _, good)| kept(good)), "what was taken is shown as it came: {shown}");
}

/// What the service says to bytes on a connection of their own.
async fn raw(world: &World, head: &str) -> String {
    let address = world.server.base.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    // It may answer, and close, before all of it was sent.
    let _cut = stream.write_all(head.as_bytes()).await;
    let mut answer = vec![0; 12];
    let _closed = stream.read_exact(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn requests_that_http_itself_refuses() {
    let world = World::new().await;
    let (tenant, _) = tenant(&world).await;
    let key = tenant.api.key.clone().expect("a key");
    let before = world.everything().await;
    let request =
        |more: &str| format!("GET /api/v1/workspaces HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{more}\r\n");
    let many = |count: usize| (0..count).map(|n| format!("x-{n}: 1\r\n")).collect::<String>();
    let post = |more: &str| {
        format!(
            "POST /api/v1/keys HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n{more}"
        )
    };
    for (name, head) in [
        ("1,000 headers", request(&many(1_000))),
        ("a header of 100 kB", request(&format!("x: {}\r\n", "a".repeat(100_000)))),
        ("a header without a name", request(": x\r\n")),
        ("a NUL in a header", request("x: a\0b\r\n")),
        ("two lengths", post("content-length: 5\r\ncontent-length: 6\r\n\r\n{}")),
        ("a length that is none", post("content-length: -1\r\n\r\n{}")),
        ("a chunk that is none", post("transfer-encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n")),
        ("an encoding that is none", post("transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n")),
        ("no protocol", "GET / HTTP/9.9\r\n\r\n".to_owned()),
    ] {
        let answer = raw(&world, &head).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{name}: {answer:?}");
    }
    assert_eq!(world.everything().await, before);
    for (name, head) in [
        ("90 headers", request(&many(90))),
        ("a header of 50 kB", request(&format!("x: {}\r\n", "a".repeat(50_000)))),
        ("one length", post("content-length: 12\r\n\r\n{\"name\":\"k\"}")),
        ("one chunk", post("transfer-encoding: chunked\r\n\r\nc\r\n{\"name\":\"k\"}\r\n0\r\n\r\n")),
    ] {
        let answer = raw(&world, &head).await;
        assert!(answer.starts_with("HTTP/1.1 2"), "{name}: {answer:?}");
    }
    let logs = &world.server.process.stderr;
    assert!(!logs.contain("panicked") && !logs.contain(" ERROR "), "{:?}", logs.all());
}
