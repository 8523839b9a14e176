//! Why the service does not start.

use std::net::SocketAddr;

use engine::outbound;
use store::connect::UrlError;
use store::migrate::MigrateError;

use crate::config::Invalid;

/// Why the service did not start; each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Setting(#[from] Invalid),
    #[error("database.url is empty: give a PostgreSQL URL, or use `forebay dev`, which runs one of its own")]
    NoDatabase,
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error(
        "there is no root key, and {address} can be reached from other machines: set auth.root_key or \
         auth.root_key_file \
         (`forebay root-key` makes a key), or listen on 127.0.0.1"
    )]
    NoRootKey { address: SocketAddr },
    #[error("cannot listen on {address}; choose another address with --listen")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Outbound(#[from] outbound::Error),
    #[cfg(feature = "test-engine")]
    #[error("open the test engine")]
    TestEngine(#[source] std::io::Error),
    #[error("start a thread")]
    Thread(#[source] std::io::Error),
    #[error(
        "roles dispatcher and worker go together with the embedded engine: give both or neither, or set engine.kind to \
         temporal"
    )]
    SplitRoles,
    #[error(transparent)]
    Store(#[from] store::Error),
}
