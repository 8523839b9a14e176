//! Attacks below HTTP: connections that are held open, heads that never end, responses that nobody reads.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::ground::Ground;

/// How long an attacker holds a connection that nobody closes.
const HOLDS: Duration = Duration::from_secs(15);

/// An address of the attackers. A few of them share one.
fn address(n: usize) -> IpAddr {
    let last = u8::try_from(66 + n % 4).unwrap_or(66);
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

async fn connect(to: SocketAddr, n: usize) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind(SocketAddr::new(address(n), 0)).ok()?;
    socket.connect(to).await.ok()
}

/// Sends the bytes and waits until it is disconnected, or for the maximum time.
async fn hold(ground: &Ground, n: usize, bytes: &[u8]) {
    let Some(mut socket) = connect(ground.address, n).await else { return };
    if socket.write_all(bytes).await.is_err() {
        return;
    }
    let mut answer = [0; 1024];
    let closed = async { while matches!(socket.read(&mut answer).await, Ok(count) if count > 0) {} };
    let _held = tokio::time::timeout(HOLDS, closed).await;
}

/// The beginning of a head, and nothing more.
pub(super) async fn half_request(ground: Arc<Ground>, n: usize) -> bool {
    hold(&ground, n, b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-more: ").await;
    false
}

/// A head of 300 kB that does not end.
pub(super) async fn long_head(ground: Arc<Ground>, n: usize) -> bool {
    let head = [b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-more: ".as_slice(), &[b'x'; 300 << 10]].concat();
    hold(&ground, n, &head).await;
    false
}

/// A body that was announced and is never sent.
pub(super) async fn slow_body(ground: Arc<Ground>, n: usize) -> bool {
    let head =
        b"POST /triggers/none HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n{";
    hold(&ground, n, head).await;
    false
}

/// Hundreds of large responses that are never read.
pub(super) async fn never_read(ground: Arc<Ground>, n: usize) -> bool {
    let Some(mut socket) = connect(ground.address, n).await else { return false };
    let ask = b"GET /api/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(200);
    let _closed = socket.write_all(&ask).await;
    // It notices nothing, because it reads nothing.
    tokio::time::sleep(HOLDS).await;
    false
}
