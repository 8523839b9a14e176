//! The addresses at which a process listens: for the API, and for health, readiness and metrics.
//!
//! Not here: the routes (`http`), how connections are served (`parts::api`).

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::StartError;
use crate::config::Settings;

/// The listening sockets of a process.
pub(super) struct Listeners {
    /// For the API (`http.listen`), in a process with the role `api`.
    pub(super) api: Option<TcpListener>,
    /// Only for health, readiness and metrics (`http.admin_listen`).
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

    /// The address of the API, and the admin address. Without an API the admin address comes first.
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
