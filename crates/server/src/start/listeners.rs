//! Where a process listens: for the API, and for whoever watches it.
//!
//! Not here: what is answered there (`http`), how connections are served (`parts::api`).

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::StartError;
use crate::config::Settings;

/// The open sockets of a process.
pub(super) struct Listeners {
    /// For the API, in a process that has that role.
    pub(super) api: Option<TcpListener>,
    /// For health, readiness and metrics alone.
    pub(super) admin: Option<TcpListener>,
}

impl Listeners {
    pub(super) async fn open(settings: &Settings, api: bool) -> Result<Listeners, StartError> {
        let api = if api { Some(listen(settings.http.listen).await?) } else { None };
        let admin = match settings.http.admin_listen {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        Ok(Listeners { api, admin })
    }

    /// Where this process is reached, and where it is watched if that is another address.
    pub(super) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let at = |listener: &Option<TcpListener>| listener.as_ref().and_then(|listener| listener.local_addr().ok());
        match at(&self.api) {
            Some(api) => (Some(api), at(&self.admin)),
            None => (at(&self.admin), None),
        }
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}
