//! Proxies to the database and to Temporal that a test can cut: open connections are dropped and new ones fail.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;

pub(crate) struct Way {
    pub(crate) address: SocketAddr,
    up: watch::Sender<bool>,
}

impl Way {
    /// A way to whatever this connects with.
    pub(crate) async fn to<F, S>(connect: impl Fn() -> F + Clone + Send + 'static) -> Way
    where
        F: Future<Output = io::Result<S>> + Send,
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let up = watch::Sender::new(true);
        let state = up.subscribe();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (mut state, connect) = (state.clone(), connect.clone());
                tokio::spawn(async move {
                    if !*state.borrow_and_update() {
                        return;
                    }
                    let connecting = connect();
                    let Ok(mut far) = connecting.await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = state.wait_for(|up| !up) => {}
                    }
                });
            }
        });
        Way { address, up }
    }

    pub(crate) fn cut(&self) {
        self.up.send_replace(false);
    }

    pub(crate) fn mend(&self) {
        self.up.send_replace(true);
    }
}

/// The way to the database.
pub(crate) struct Proxy(Way);

impl Proxy {
    /// A way to the server that this URL names by its socket's directory.
    pub(crate) async fn to(url: &str) -> Proxy {
        let socket = PathBuf::from(option(url, "host")).join(".s.PGSQL.5432");
        Proxy(Way::to(move || UnixStream::connect(socket.clone())).await)
    }

    /// The same database by this way.
    pub(crate) fn url(&self, url: &str) -> String {
        let (_, rest) = url.split_once("///").expect("a socket URL");
        let (database, _) = rest.split_once('?').expect("a socket URL has options");
        format!("postgresql://{}@{}/{database}?sslmode=disable", option(url, "user"), self.0.address)
    }

    pub(crate) fn cut(&self) {
        self.0.cut();
    }

    pub(crate) fn mend(&self) {
        self.0.mend();
    }
}

fn option<'u>(url: &'u str, name: &str) -> &'u str {
    let (_, options) = url.split_once('?').expect("a socket URL has options");
    let found = options.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name));
    found.map(|(_, value)| value).expect("a socket URL names host and user")
}
