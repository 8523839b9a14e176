//! The WebSocket of the Supabase client: authentication and upgrade.
//!
//! Invariants
//! - The key is in the query string, so logs and traces contain the route of this address but never its query string.
//! - Only an invalid key is refused here. A temporary problem, such as an unavailable database, is reported in the
//!   reply to a join instead: the client shows that error and repeats the join.
//! - A refusal is delayed, because the client reconnects again and again.
//!
//! Not here: frames, filters and payloads (`kernel::change`), the changes themselves (`crate::feed`).

mod channels;
mod identity;
mod socket;

use std::time::{Duration, Instant};

use axum::extract::rejection::QueryRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use supabase::frame::ProtocolVersion;

use super::failures::{Origin, Reason};
use super::{Api, Code, Problem};
use identity::Identity;
use socket::Socket;

/// The delay before an invalid key is refused.
const REFUSED_AFTER: Duration = Duration::from_secs(1);
/// The largest frame that is accepted.
const MAX_FRAME: usize = 256 * 1024;

#[derive(Deserialize)]
pub(crate) struct SocketParams {
    apikey: Option<String>,
    vsn: Option<String>,
}

/// Opens a WebSocket.
#[utoipa::path(get, path = "/realtime/v1/websocket", tag = "streams",
    responses((status = 101, description = "The connection switches to WebSocket.")))]
pub(crate) async fn connect(
    State(api): State<Api>,
    params: Result<Query<SocketParams>, QueryRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    origin: Origin,
) -> Result<Response, Problem> {
    // The message of the framework may quote the query string with the key, so it is not used.
    let Ok(Query(params)) = params else { return Err(Problem::of(Code::Malformed)) };
    let upgrade = upgrade.map_err(|_| Problem::new(Code::Malformed, "this address accepts only WebSocket requests"))?;
    let version = ProtocolVersion::parse(params.vsn.as_deref())
        .ok_or_else(|| Problem::new(Code::Malformed, "vsn: must be 2.0.0 or 1.0.0"))?;
    let opened = match params.apikey.as_deref() {
        Some(key) => Identity::open(&api, origin.0, key).await,
        None => {
            api.failures.note(origin.0, Reason::Missing, Instant::now());
            Err(Problem::new(Code::Unauthenticated, "the request has no key: send it as the parameter apikey"))
        }
    };
    let (secret, share) = match opened {
        Ok(opened) => opened,
        Err(problem) => {
            tokio::time::sleep(REFUSED_AFTER).await;
            return Err(problem);
        }
    };
    let most = api.settings.http.max_streams_per_workspace;
    let permit = api.streams.try_permit(&share, most).ok_or_else(|| super::stream::too_many(most))?;
    let held = api.tasks.token();
    let upgrade = upgrade.max_message_size(MAX_FRAME).max_frame_size(MAX_FRAME);
    Ok(upgrade.on_upgrade(async move |opened| {
        let _held = (permit, held);
        Socket::new(api, version, origin.0, secret).run(opened).await;
    }))
}
