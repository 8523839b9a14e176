//! A proxy between the processes and the database that cuts connections at any moment.
//!
//! Invariants
//! - Everything that a process sent before a cut reaches the server. So a commit may succeed although its answer never
//!   arrives, which is the case that the run tests.
//! - The proxy adds no bytes and changes none.

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;

/// How long a statement sent just before a cut has to be carried out.
const UNSEEN: Duration = Duration::from_millis(20);

/// A running proxy. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    port: u16,
    connections: Arc<Mutex<Vec<Connection>>>,
    cuts: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Connection {
    /// When canceled, the proxy withholds further answers, and then ends the connection.
    cut: CancellationToken,
}

impl Proxy {
    /// Listens in front of the server at this URL, which names its socket's directory.
    pub(super) async fn start(url: &str) -> anyhow::Result<Proxy> {
        let directory = url.split("host=").nth(1).and_then(|rest| rest.split('&').next());
        let socket = PathBuf::from(directory.context("the server's socket")?).join(".s.PGSQL.5432");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen in front of the database")?;
        let port = listener.local_addr()?.port();
        let proxy = Proxy { port, connections: Arc::default(), cuts: Arc::default() };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cut = CancellationToken::new();
                accepting.lock().push(Connection { cut: cut.clone() });
                tokio::spawn(carry(client, socket.clone(), cut));
            }
        });
        Ok(proxy)
    }

    /// Where the processes connect.
    pub(super) fn url(&self) -> String {
        format!("postgresql://forebay@127.0.0.1:{}/forebay?sslmode=disable", self.port)
    }

    /// Cuts one in `one_in` connections; 1 cuts all of them.
    pub(super) fn cut(&self, one_in: usize) {
        let mut connections = self.lock();
        connections.retain(|connection| !connection.cut.is_cancelled());
        for connection in connections.iter().step_by(one_in.max(1)) {
            connection.cut.cancel();
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Relaxed)
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<Connection>> {
        self.connections.lock()
    }
}

async fn carry(client: TcpStream, socket: PathBuf, cut: CancellationToken) {
    let Ok(server) = UnixStream::connect(&socket).await else { return };
    let _small_answers_at_once = client.set_nodelay(true);
    let (mut from_client, mut to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let asked = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    answers(from_server, &mut to_client, &cut).await;
    if cut.is_cancelled() {
        tokio::time::sleep(UNSEEN).await;
    }
    asked.abort();
    drop(to_client.shutdown().await);
}

/// Forwards answers until the server closes the connection or the proxy cuts it.
async fn answers(mut server: OwnedReadHalf, client: &mut tokio::net::tcp::OwnedWriteHalf, cut: &CancellationToken) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = tokio::select! {
            read = server.read(&mut buffer) => read,
            () = cut.cancelled() => return,
        };
        match read {
            Ok(length) if length > 0 => {
                if cut.is_cancelled() || client.write_all(&buffer[..length]).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}
