//! Clients that send slowly, read nothing, or hold connections: other clients are served, and the slow connections are
//! closed.

use std::io::ErrorKind::WouldBlock;
use std::net::IpAddr;

use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::http::begin;
use crate::support::{Receiver, Server, World, until};

/// Half a request: its head never ends.
const HALF: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-more: ";

async fn connect(server: &Server, from: [u8; 4]) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((IpAddr::from(from), 0).into()).expect("an address of our own");
    let to = server.base.trim_start_matches("http://").parse().expect("an address");
    socket.connect(to).await.expect("a connection")
}

/// Connections that each sent this and nothing more. Some may have been closed by the time they send.
async fn hold(server: &Server, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut socket = connect(server, [127, 0, 0, 1]).await;
        let _closed = socket.write_all(bytes).await;
        held.push(socket);
    }
    held
}

/// Waits until the other side has closed it; what it said before does not matter.
async fn closed(mut socket: TcpStream) {
    let mut rest = Vec::new();
    let all = socket.read_to_end(&mut rest);
    let _reset = tokio::time::timeout(crate::support::PATIENCE, all).await.expect("it is closed in time");
}

/// Asks how it is, from this address.
async fn health(server: &Server, from: [u8; 4]) {
    let http = reqwest::Client::builder().no_proxy().local_address(IpAddr::from(from)).build().expect("a client");
    let url = format!("{}/healthz", server.base);
    let answer = tokio::time::timeout(crate::support::PATIENCE, http.get(url).send()).await;
    assert_eq!(answer.expect("in time").expect("an answer").status(), 200);
}

async fn world_with_files(files: usize) -> World {
    let database = store::testing::Database::new().await;
    let receiver = Receiver::start().await;
    let server = Server::start_with_files(files, &database.url, &receiver.allowed(&[])).await;
    World { database, receiver, server }
}

#[tokio::test]
async fn half_requests_for_every_descriptor_stop_neither_clients_nor_work() {
    let world = world_with_files(200).await;
    let held = hold(&world.server, 190, HALF).await;
    for from in [[127, 0, 0, 1], [127, 0, 0, 2]] {
        health(&world.server, from).await;
    }
    let is_open = |socket: &&TcpStream| socket.try_read(&mut [0]).is_err_and(|error| error.kind() == WouldBlock);
    assert!(held.iter().any(|socket| is_open(&socket)), "nobody had to wait until all of them were let go");
    let tenant = world.tenant("FREE").await;
    let calls = tenant.apply("calls", serde_json::json!({ "call": world.receiver.node("/call/a") })).await;
    tenant.completed(&tenant.start(&calls).await).await;
    for socket in held {
        closed(socket).await;
    }
    let logs = &world.server.process.stderr;
    assert!(!logs.contain("Too many open files"), "{:?}", logs.all());
}

/// The memory of a process that is in use, in MiB.
fn memory_mb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.pid())).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

#[tokio::test]
async fn half_requests_with_long_heads_hold_little_memory() {
    let world = World::new().await;
    health(&world.server, [127, 0, 0, 2]).await;
    let before = memory_mb(&world.server);
    let long = [HALF, "x".repeat(380 << 10).as_bytes()].concat();
    let held = hold(&world.server, 600, &long).await;
    health(&world.server, [127, 0, 0, 2]).await;
    let grown = memory_mb(&world.server).saturating_sub(before);
    assert!(grown < 100, "600 half-requests hold {grown} MiB");
    drop(held);
}

#[tokio::test]
async fn a_client_that_never_reads_is_let_go() {
    let world = World::with(&["http.write_timeout_ms=500"]).await;
    let ask = b"GET /api/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(400);
    let greedy = hold(&world.server, 3, &ask).await;
    let series = "forebay_http_connections_closed_total{reason=\"write_timeout\"}";
    until("all are let go", async || (world.server.metric(series).await >= 3.0).then_some(())).await;
    drop(greedy);
}

#[tokio::test]
async fn a_client_of_http_2_that_takes_no_byte_of_its_answer_is_refused() {
    let world = World::with(&["http.write_timeout_ms=500", "http.idle_timeout_ms=500"]).await;
    let path = b"/api/openapi.json";
    let mut request = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).expect("a short path")];
    request.extend_from_slice(path);
    let length = u8::try_from(request.len()).expect("a short request");
    // Settings with a window of no bytes, and a request.
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0".to_vec();
    sent.extend_from_slice(&[0, 0, length, 1, 5, 0, 0, 0, 1]);
    sent.extend_from_slice(&request);
    for socket in hold(&world.server, 3, &sent).await {
        closed(socket).await;
    }
}

#[tokio::test]
async fn idle_connections_are_closed_and_streams_stay_open() {
    let world = World::with(&["http.idle_timeout_ms=500", "http.header_timeout_ms=500"]).await;
    let tenant = world.tenant("FREE").await;
    let definition = tenant.light().await;
    let mut stream = tenant.api.request(Method::GET, "workflow/executions/events").send().await.expect("a stream");
    assert_eq!(stream.status(), 200);
    let idle = hold(&world.server, 2, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let silent = hold(&world.server, 2, b"").await;
    for socket in idle.into_iter().chain(silent) {
        closed(socket).await;
    }
    assert!(world.server.metric("forebay_http_connections_closed_total{reason=\"idle_timeout\"}").await >= 2.0);
    assert!(world.server.metric("forebay_http_connections_closed_total{reason=\"header_timeout\"}").await >= 2.0);
    let id = tenant.start(&definition).await;
    until("the stream delivers it", async || {
        let chunk = stream.chunk().await.expect("the stream is open").expect("the stream goes on");
        String::from_utf8_lossy(&chunk).contains(&id).then_some(())
    })
    .await;
    begin(tenant.api.request(Method::GET, "workflow/executions/events")).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let world = World::with(&["http.request_timeout_ms=1000"]).await;
    let head =
        b"POST /triggers/none HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
    for socket in hold(&world.server, 5, head).await {
        closed(socket).await;
    }
}
