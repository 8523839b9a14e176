//! Tests the guard with real listeners: a refused call reaches no listener, an allowed call reaches one.
//!
//! A test of a refusal checks its reason, and that the listener counted no connection. Every table has a control case
//! that must pass.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::outbound::{Body, Lookup, Method, Outbound, OutboundSettings, Request, Response, failure_of};
use kernel::ids::WorkspaceId;
use kernel::run::failure::{Class, Failure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use uuid::Uuid;

/// A server that counts connections, stores its requests, and answers from a function.
#[derive(Clone)]
struct Server {
    port: u16,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
    arrived: Notify,
    closed: Notify,
}

impl Server {
    /// Listens on every address of the machine, so that every way around the guard would be counted.
    async fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = match TcpListener::bind("[::]:0").await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind("0.0.0.0:0").await.expect("a port"),
        };
        let port = listener.local_addr().expect("an address").port();
        let server = Self { port, seen: Arc::default() };
        let (seen, answer) = (Arc::clone(&server.seen), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                seen.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, Arc::clone(&seen), Arc::clone(&answer)));
            }
        });
        server
    }

    async fn saying(text: &'static str) -> Self {
        Self::start(move |_| ok(text)).await
    }

    fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().expect("no test panics while holding it").clone()
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn entry(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// Reads whole requests and answers each. An empty answer sends nothing, and the connection stays open.
async fn serve<A: Fn(&str) -> Vec<u8>>(mut stream: TcpStream, seen: Arc<Seen>, answer: Arc<A>) {
    let mut bytes = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut bytes).await {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() < length.map_or(0, |length| length.parse().expect("a length")) {
            continue;
        }
        seen.requests.lock().expect("no test panics while holding it").push(text.clone());
        seen.arrived.notify_one();
        bytes.clear();
        if stream.write_all(&answer(&text)).await.is_err() {
            break;
        }
    }
    seen.closed.notify_one();
}

fn ok(body: &str) -> Vec<u8> {
    reply("200 OK", &[], body)
}

fn reply(status: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A guard that opens these hosts and resolves these names.
fn outbound(allow: &[String], names: &'static [(&'static str, &'static [&'static str])]) -> Outbound {
    let lookup: Lookup = Arc::new(move |name| {
        let known = names.iter().find(|(known, _)| *known == name);
        let known = known.map(|(_, all)| all.iter().map(|a| a.parse::<IpAddr>().expect("an address")).collect());
        Box::pin(async move { known.ok_or_else(|| std::io::Error::other("no such name")) })
    });
    let allow = allow.iter().map(|entry| entry.parse().expect("an entry")).collect();
    Outbound::with_lookup(OutboundSettings { allow, ..OutboundSettings::default() }, lookup).expect("a guard")
}

fn get(url: impl Into<String>) -> Request {
    let mut request = Request::new(Method::Get, url, WorkspaceId(Uuid::nil()));
    request.timeout = Duration::from_secs(5);
    request
}

fn is_denied(result: &Result<Response, Failure>) -> bool {
    matches!(result, Err(Failure { class: Class::SecurityError, message, .. }) if message.starts_with("egress_denied: "))
}

/// Ways to write an address of the listener; `PORT` is where it listens.
const IPV4_FORMS: [&str; 10] = [
    "http://127.0.0.1:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f000001:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://127.1:PORT/",
    "http://0x7f.1:PORT/",
    "http:127.0.0.1:PORT/",
    "http:/127.0.0.1:PORT/",
    "http://１２７。0。0。1:PORT/",
    "http://127.0.0.1:PORT#@example.com/",
];

const OTHER_FORMS: [&str; 34] = [
    "http://127.0.0.2:PORT/",
    "http://0:PORT/",
    "http://0.0.0.0:PORT/",
    "http://[::1]:PORT/",
    "http://[::]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:a9fe:a9fe]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[::ffff:0:127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]:PORT/",
    "http://[64:ff9b:1::a9fe:a9fe]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://[fec0::1]:PORT/",
    "http://[fd00:ec2::254]:PORT/",
    "http://[fe80::1%25eth0]:PORT/",
    "http://169.254.169.254:PORT/latest/meta-data/",
    "http://100.100.100.200:PORT/",
    "http://192.0.0.192:PORT/",
    "http://168.63.129.16:PORT/",
    "http://metadata.google.internal:PORT/",
    "http://metadata.google.internal.:PORT/",
    "http://localhost:PORT/",
    "http://localhost.:PORT/",
    "http://LOCALHOST:PORT/",
    "http://foo@127.0.0.1:PORT/",
    "http://1.1.1.1 &@127.0.0.1:PORT/",
    "http://api.example@127.0.0.1:PORT/",
    "http://api.example:80@127.0.0.1:PORT/",
    "http://127.0.0.1%00.example:PORT/",
    "https://127.0.0.1:PORT/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:PORT/",
    "ftp://127.0.0.1:PORT/",
    "data:text/plain,x",
];

#[tokio::test]
async fn every_form_of_a_forbidden_address_is_refused_without_a_connection() {
    let server = Server::saying("reached").await;
    let outbound = outbound(&[], &[]);
    for form in IPV4_FORMS.iter().chain(&OTHER_FORMS) {
        let result = outbound.send(get(form.replace("PORT", &server.port.to_string()))).await;
        assert!(is_denied(&result), "{form}: {result:?}");
    }
    for port in [0, 22, 25, 5432, 7233] {
        let result = outbound.send(get(format!("http://1.1.1.1:{port}/"))).await;
        assert!(is_denied(&result), "{port}: {result:?}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn an_entry_opens_that_address_and_port_and_no_other() {
    let (server, other) = (Server::saying("reached").await, Server::saying("reached").await);
    let outbound = outbound(&[server.entry()], &[]);
    for form in IPV4_FORMS {
        let response = outbound.send(get(form.replace("PORT", &server.port.to_string()))).await.expect(form);
        assert_eq!((response.status, response.body), (200, json!("reached")), "{form}");
        let result = outbound.send(get(form.replace("PORT", &other.port.to_string()))).await;
        assert!(is_denied(&result), "{form}: {result:?}");
    }
    let reached = server.requests().len();
    // The https form contains the opened address, and only the listener's lack of TLS stops it.
    for form in OTHER_FORMS.iter().filter(|form| !form.starts_with("https:")) {
        let result = outbound.send(get(form.replace("PORT", &server.port.to_string()))).await;
        assert!(is_denied(&result), "{form}: {result:?}");
    }
    assert_eq!((reached, server.requests().len(), other.connections()), (IPV4_FORMS.len(), reached, 0));
}

const NAMES: &[(&str, &[&str])] = &[
    ("inside.example", &["127.0.0.1"]),
    ("mixed.example", &["1.1.1.1", "127.0.0.1"]),
    ("mapped.example", &["::ffff:127.0.0.1"]),
    ("opened.example", &["127.0.0.1"]),
    ("opened.example.", &["127.0.0.1"]),
];

#[tokio::test]
async fn a_name_with_a_forbidden_address_is_refused_without_a_connection_or_its_address() {
    let server = Server::saying("reached").await;
    let outbound = outbound(&[server.entry(), format!("opened.example:{}", server.port)], NAMES);
    for name in ["inside.example", "mixed.example", "mapped.example"] {
        let failure = outbound.send(get(format!("http://{name}:{}/", server.port))).await.expect_err(name);
        let expected = format!("egress_denied: {name:?} may not be called: it has an address that is not public");
        assert!(failure.message.starts_with(&expected), "{}", failure.message);
        assert_eq!(failure.class, Class::SecurityError);
    }
    assert_eq!(server.connections(), 0);
    for url in
        ["http://opened.example:PORT/", "http://OPENED.example.:PORT/", "http://opened.example:PORT\\@127.0.0.1/"]
    {
        let response = outbound.send(get(url.replace("PORT", &server.port.to_string()))).await.expect(url);
        assert_eq!(response.body, json!("reached"), "{url}");
    }
    assert!(server.requests()[2].starts_with("GET /@127.0.0.1/ "), "{:?}", server.requests());
    let other = Server::saying("reached").await;
    let result = outbound.send(get(format!("http://opened.example:{}/", other.port))).await;
    assert!(is_denied(&result) && other.connections() == 0, "{result:?}");
}

#[tokio::test]
async fn a_redirect_passes_the_whole_guard_again() {
    let hidden = Server::saying("reached").await;
    let server = Server::start(|request| {
        let (status, location) = request[5..].split_once(' ').expect("a path").0.split_once('/').expect("two parts");
        reply(&format!("{status} Moved"), &[("location", &location.replace('~', "/"))], "")
    })
    .await;
    let outbound = outbound(&[server.entry()], NAMES);
    for status in [301, 302, 303, 307, 308] {
        for location in [
            "http:~~127.0.0.1:PORT~",
            "~~127.0.0.1:PORT~",
            "http:~~2130706433:PORT~",
            "http:~~[::1]:PORT~",
            "http:~~[::ffff:127.0.0.1]:PORT~",
            "http:~~localhost:PORT~",
            "http:~~inside.example:PORT~",
            "http:~~u@127.0.0.1:PORT~",
            "http:~~169.254.169.254~latest",
            "file:~~~etc~passwd",
            "gopher:~~127.0.0.1:PORT~",
            "http:~~",
            "http:~~1.1.1.1:22~",
        ] {
            let location = location.replace("PORT", &hidden.port.to_string());
            let result = outbound.send(get(server.url(&format!("/{status}/{location}")))).await;
            assert!(is_denied(&result), "{status} {location}: {result:?}");
        }
    }
    assert_eq!((hidden.connections(), server.requests().len()), (0, 5 * 13));
}

#[tokio::test]
async fn redirects_end_after_the_third() {
    let server = Server::start(|request| {
        let left: usize = request[5..].split_once(' ').expect("a path").0.parse().expect("a number");
        if left == 0 { ok("there") } else { reply("302 Found", &[("location", &format!("/{}", left - 1))], "") }
    })
    .await;
    let outbound = outbound(&[server.entry()], &[]);
    let response = outbound.send(get(server.url("/3"))).await.expect("an answer");
    assert_eq!((response.body, response.url), (json!("there"), server.url("/0")));
    let failure = outbound.send(get(server.url("/20"))).await.expect_err("a loop");
    assert_eq!(failure, Failure::new(Class::ValidationError, "\"127.0.0.1\" redirects more than 3 times"));
    assert_eq!(server.requests().len(), 4 + 4);
}

#[tokio::test]
async fn a_redirect_to_another_origin_carries_no_credentials() {
    let there = Server::saying("there").await;
    let location = there.url("/new");
    let server = Server::start(move |_| reply("307 Go", &[("location", &location)], "")).await;
    let outbound = outbound(&[server.entry(), there.entry()], &[]);
    let mut request = get(server.url("/go"));
    request.method = Method::Post;
    request.body = Some(Body::Json(json!({"a": 1})));
    request.idempotency_token = Some("e/n/0".to_owned());
    for name in ["Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key"] {
        request.headers.push((name.to_owned(), "s3cret".to_owned()));
    }
    outbound.send(request).await.expect("an answer");
    let [first] = &server.requests()[..] else { panic!("one request") };
    assert_eq!(first.matches("s3cret").count(), 4, "{first}");
    let [second] = &there.requests()[..] else { panic!("one request") };
    assert!(!second.contains("s3cret") && second.starts_with("POST /new "), "{second}");
    assert!(second.contains("idempotency-key: e/n/0") && second.ends_with("{\"a\":1}"), "{second}");
}

#[tokio::test]
async fn a_redirect_within_the_origin_keeps_them() {
    let server = Server::start(|request| {
        if request.starts_with("GET /new ") { ok("new") } else { reply("302 Found", &[("location", "/new")], "") }
    })
    .await;
    let mut request = get(server.url("/old"));
    request.headers.push(("Authorization".to_owned(), "s3cret".to_owned()));
    outbound(&[server.entry()], &[]).send(request).await.expect("an answer");
    assert!(server.requests()[1].contains("s3cret"), "{:?}", server.requests());
}

#[tokio::test]
async fn a_redirect_without_a_place_is_an_answer() {
    let server = Server::start(|_| reply("302 Found", &[], "nowhere")).await;
    let response = outbound(&[server.entry()], &[]).send(get(server.url("/"))).await.expect("an answer");
    assert_eq!((response.status, response.body), (302, json!("nowhere")));
}

/// A gzip stream of zeros that decompresses to 160 times its length: one literal, then copies of it.
fn bomb() -> Vec<u8> {
    let mut bits = vec![1u8, 1, 0];
    bits.extend([0, 0, 1, 1, 0, 0, 0, 0]);
    for _ in 0..40_000 {
        bits.extend([1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0]);
    }
    let mut bytes = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03".to_vec();
    bytes.extend(bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |all, bit| all << 1 | bit)));
    bytes
}

fn gzipped(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

const HELLO: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\xcb\x48\xcd\xc9\xc9\x07\0\x86\xa6\x10\x36\x05\0\0\0";

#[tokio::test]
async fn a_body_is_read_up_to_its_limit() {
    let server = Server::start(|request| match request {
        _ if request.starts_with("GET /announced") => ok(&"x".repeat(1_001)),
        _ if request.starts_with("GET /chunked") => {
            let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}{chunk}0\r\n\r\n").into_bytes()
        }
        _ if request.starts_with("GET /bomb") => gzipped(&bomb()),
        _ if request.starts_with("GET /gzip") => gzipped(HELLO),
        _ => ok(&"x".repeat(1_000)),
    })
    .await;
    let outbound = outbound(&[server.entry()], &[]);
    for path in ["/announced", "/chunked", "/bomb"] {
        let mut request = get(server.url(path));
        // The bomb is within the limit on the wire, and exceeds it only once decompressed.
        request.max_response_bytes = if path == "/bomb" { 1 << 20 } else { 1_000 };
        let expected = format!("127.0.0.1 answered with a body of more than {} bytes", request.max_response_bytes);
        let failure = outbound.send(request).await.expect_err(path);
        assert_eq!(failure, Failure::new(Class::ValidationError, expected), "{path}");
    }
    let mut request = get(server.url("/exact"));
    request.max_response_bytes = 1_000;
    assert_eq!(outbound.send(request).await.expect("an answer").body, json!("x".repeat(1_000)));
    assert_eq!(outbound.send(get(server.url("/gzip"))).await.expect("an answer").body, json!("hello"));
    assert!(bomb().len() < 1 << 20, "the bomb is small on the wire");
}

#[tokio::test]
async fn too_many_headers_are_refused() {
    let server = Server::start(|request| {
        let count = if request.starts_with("GET /many") { 200 } else { 100 };
        reply("200 OK", &vec![("x-a", "b"); count], "")
    })
    .await;
    let outbound = outbound(&[server.entry()], &[]);
    let failure = outbound.send(get(server.url("/many"))).await.expect_err("too many");
    assert_eq!(failure.class, Class::ValidationError, "{failure:?}");
    let response = outbound.send(get(server.url("/few"))).await.expect("an answer");
    assert_eq!(response.headers["x-a"].matches("b, b").count(), 50);
}

#[tokio::test]
async fn an_excerpt_has_the_status_whatever_else_the_answer_is() {
    let server = Server::start(|request| match request {
        _ if request.starts_with("GET /long") => reply("503 Busy", &[("retry-after", "7")], &"é".repeat(1 << 20)),
        _ if request.starts_with("GET /bomb") => gzipped(&bomb()),
        _ if request.starts_with("GET /headers") => {
            let mut headers = vec![("x-a", "b"); 200];
            headers.push(("retry-after", "7"));
            reply("503 Busy", &headers, "no")
        }
        _ if request.starts_with("GET /half") => b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec(),
        _ => b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nhalf".to_vec(),
    })
    .await;
    let outbound = outbound(&[server.entry()], &[]);
    for (path, status, length, wait) in [
        ("/long", 503, 1_000, Some(7)),
        ("/bomb", 200, 1_000, None),
        ("/headers", 503, 2, Some(7)),
        ("/half", 200, 4, None),
        ("/undecodable", 200, 0, None),
    ] {
        let mut request = get(server.url(path));
        (request.max_response_bytes, request.cuts) = (1_000, true);
        let response = outbound.send(request).await.expect(path);
        let body = response.body.as_str().expect("text").len();
        assert_eq!((response.status, body), (status, length), "{path}");
        assert_eq!(engine::outbound::wanted_wait(&response), wait.map(Duration::from_secs), "{path}");
    }
    let mut request = get(server.url("/long"));
    (request.cuts, request.secrets) = (true, Some(Arc::new(engine::mask::Mask::new(["é"]))));
    assert_eq!(outbound.send(request).await.expect("an answer").body, Value::Null);
}

#[tokio::test]
async fn a_call_ends_within_its_timeout() {
    let server = Server::start(|request| match request {
        _ if request.starts_with("GET /silent") => Vec::new(),
        _ => b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf a bod".to_vec(),
    })
    .await;
    let outbound = outbound(&[server.entry()], &[]);
    for path in ["/silent", "/slow"] {
        let mut request = get(server.url(path));
        request.timeout = Duration::from_millis(100);
        let failure = outbound.send(request).await.expect_err(path);
        assert_eq!(
            failure,
            Failure::new(Class::Timeout, "no complete response from \"127.0.0.1\" within 100 ms"),
            "{path}"
        );
        server.seen.closed.notified().await;
    }
}

#[tokio::test]
async fn dropping_a_call_ends_it() {
    let server = Server::start(|_| Vec::new()).await;
    let outbound = outbound(&[server.entry()], &[]);
    tokio::select! {
        result = outbound.send(get(server.url("/"))) => panic!("{result:?}"),
        () = server.seen.arrived.notified() => {}
    }
    server.seen.closed.notified().await;
}

#[tokio::test]
async fn connections_are_reused_within_a_workspace_only() {
    let server = Server::saying("fine").await;
    let outbound = outbound(&[server.entry()], &[]);
    for (workspace, expected) in [(1, 1), (1, 1), (2, 2), (1, 2)] {
        let mut request = get(server.url("/"));
        request.partition = WorkspaceId(Uuid::from_u128(workspace));
        outbound.clone().send(request).await.expect("an answer");
        assert_eq!(server.connections(), expected, "workspace {workspace}");
    }
}

#[tokio::test]
async fn a_broken_connection_is_described_without_internals() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let server = Server::start(|_| b"no HTTP at all\r\n\r\n".to_vec()).await;
    let plain = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let plain_address = plain.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.expect("a connection");
        stream.write_all(b"no TLS at all\r\n").await.expect("an open connection");
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let outbound = outbound(&[free.to_string(), server.entry(), plain_address.to_string()], &[]);
    let refused = format!("cannot connect to \"{free}\": connection refused");
    let no_tls = format!("cannot connect to \"{plain_address}\": TLS handshake failed");
    for (url, message) in [
        (format!("http://{free}/secret?key"), refused.as_str()),
        ("http://nowhere.example/secret".to_owned(), "\"nowhere.example\" does not resolve to an address"),
        (format!("https://{plain_address}/secret"), &no_tls),
        (server.url("/secret"), "the connection to \"127.0.0.1\" broke before the response was complete"),
    ] {
        let failure = outbound.send(get(url)).await.expect_err(message);
        assert_eq!(failure, Failure::new(Class::ExecutionError, message));
    }
}

#[tokio::test]
async fn the_idempotency_token_is_sent_unless_the_user_set_one() {
    let server = Server::saying("fine").await;
    let outbound = outbound(&[server.entry()], &[]);
    let mut request = get(server.url("/"));
    request.idempotency_token = Some("e/n/0".to_owned());
    outbound.send(request.clone()).await.expect("an answer");
    request.headers.push(("IDEMPOTENCY-KEY".to_owned(), "mine".to_owned()));
    outbound.send(request).await.expect("an answer");
    let keys: Vec<String> = server.requests().iter().map(|request| header(request, "idempotency-key")).collect();
    assert_eq!(keys, ["e/n/0", "mine"]);
}

fn header(request: &str, name: &str) -> String {
    let values: Vec<&str> = request.lines().filter_map(|line| line.strip_prefix(&format!("{name}: "))).collect();
    values.join("|")
}

#[tokio::test]
async fn a_request_arrives_as_it_was_made() {
    let server = Server::saying("fine").await;
    let outbound = outbound(&[server.entry()], &[]);
    let pairs = vec![("a b".to_owned(), "c&d".to_owned()), ("é".to_owned(), String::new())];
    for (body, content_type, expected) in [
        (Body::Json(json!({"a": [1]})), "application/json", "{\"a\":[1]}"),
        (Body::Form(pairs.clone()), "application/x-www-form-urlencoded", "a+b=c%26d&%C3%A9="),
        (Body::Text("hello".to_owned()), "text/plain; charset=utf-8", "hello"),
    ] {
        let mut request = get(server.url("/p?x=y#f"));
        request.method = Method::Patch;
        request.query = pairs.clone();
        request.body = Some(body);
        outbound.send(request).await.expect("an answer");
        let sent = server.requests().pop().expect("a request");
        assert!(sent.starts_with("PATCH /p?x=y&a+b=c%26d&%C3%A9= HTTP/1.1\r\n"), "{sent}");
        assert!(sent.ends_with(&format!("\r\n\r\n{expected}")), "{sent}");
        assert_eq!(header(&sent, "content-type"), content_type);
        assert_eq!(header(&sent, "host"), server.entry());
        assert!(header(&sent, "user-agent").starts_with("forebay/"), "{sent}");
    }
}

#[tokio::test]
async fn headers_of_the_protocol_are_refused_without_a_connection() {
    let server = Server::saying("reached").await;
    let outbound = outbound(&[server.entry()], &[]);
    for name in ["Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade"] {
        let mut request = get(server.url("/"));
        request.headers.push((name.to_owned(), "x".to_owned()));
        let result = outbound.send(request).await;
        assert!(is_denied(&result), "{name}: {result:?}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_body_that_is_not_json_is_text_or_base64() {
    let server = Server::start(|request| match request {
        _ if request.starts_with("GET /json") => reply("200 OK", &[("Content-Type", "application/json")], "{\"a\":1}"),
        _ if request.starts_with("GET /text") => reply("200 OK", &[("Content-Type", "text/html")], "<p>"),
        _ => b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\xff\xfe".to_vec(),
    })
    .await;
    let outbound = outbound(&[server.entry()], &[]);
    let table: [(&str, Value); 3] =
        [("/json", json!({"a": 1})), ("/text", json!("<p>")), ("/bytes", json!({"base64": "//4="}))];
    for (path, expected) in table {
        assert_eq!(outbound.send(get(server.url(path))).await.expect(path).body, expected, "{path}");
    }
}

#[tokio::test]
async fn a_failing_status_is_an_answer_that_means_a_failure() {
    let server = Server::start(|request| match request {
        _ if request.starts_with("GET /seconds") => reply("429 Slow", &[("Retry-After", "7")], "slow down"),
        _ if request.starts_with("GET /past") => {
            reply("503 Down", &[("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")], "")
        }
        _ => reply("404 None", &[], ""),
    })
    .await;
    let outbound = outbound(&[server.entry()], &[]);
    for (path, status, message, retry_after_ms) in [
        ("/seconds", 429, "127.0.0.1 answered 429: slow down", Some(7_000)),
        ("/past", 503, "127.0.0.1 answered 503", Some(0)),
        ("/none", 404, "127.0.0.1 answered 404", None),
    ] {
        let response = outbound.send(get(server.url(path))).await.expect(path);
        let failure = failure_of(&response).expect("a failure");
        assert_eq!((failure.status, failure.message.as_str()), (Some(status), message));
        assert_eq!(failure.retry_after_ms, retry_after_ms, "{path}");
    }
}

#[test]
fn settings_that_cannot_work_stop_the_start() {
    let settings = OutboundSettings { user_agent: "a\nb".to_owned(), ..OutboundSettings::default() };
    assert!(Outbound::new(settings).is_err());
    assert!(Outbound::new(OutboundSettings::default()).is_ok());
}
