//! The errors with which the service refuses to start.

use std::net::SocketAddr;

use engine::outbound;
use store::connect::DatabaseUrlError;
use store::migrate::MigrateError;

use crate::config::Invalid;

/// Why the service did not start, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Setting(#[from] Invalid),
    #[error("database.url is empty: set a PostgreSQL URL, or use `forebay dev`, which runs its own PostgreSQL")]
    NoDatabase,
    #[error(transparent)]
    Url(#[from] DatabaseUrlError),
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error(
        "no root key is set, although other machines can reach {address}: set auth.root_key or \
         auth.root_key_file (`forebay root-key` generates a key), or listen on 127.0.0.1"
    )]
    NoRootKey { address: SocketAddr },
    #[error("cannot listen on {address}: choose another address with --listen")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Outbound(#[from] outbound::Error),
    #[cfg(feature = "test-engine")]
    #[error("cannot open the test engine")]
    TestEngine(#[source] std::io::Error),
    #[error("cannot start a thread: check the limits on threads and memory of this process")]
    Thread(#[source] std::io::Error),
    #[error(
        "with the embedded engine, a process needs both of the roles dispatcher and worker, or neither: change \
         the roles, or set engine.kind to temporal"
    )]
    SplitRoles,
    #[error(transparent)]
    Store(#[from] store::Error),
}
