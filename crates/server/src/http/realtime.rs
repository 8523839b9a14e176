//! The socket that the Supabase client speaks: who may open one, and what becomes of it.
//!
//! Invariants
//! - The key comes in the query string, so nothing of this address but its route is ever logged or traced.
//! - Only a bad key is refused here. What may pass, such as the database being away, is told to the join, which the
//!   client shows and repeats.
//! - A refusal takes its time: the client comes back for ever.
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
use supabase::frame::Version;

use super::failures::{Origin, Reason};
use super::{Api, Code, Problem};
use identity::Identity;
use socket::Socket;

/// How long a bad key waits for its answer.
const REFUSED_AFTER: Duration = Duration::from_secs(1);
/// The largest frame taken.
const LARGEST: usize = 256 * 1024;

#[derive(Deserialize)]
pub(crate) struct Asked {
    apikey: Option<String>,
    vsn: Option<String>,
}

/// Opens a socket.
#[utoipa::path(get, path = "/realtime/v1/websocket", tag = "streams",
    responses((status = 101, description = "Speaks WebSocket from here on.")))]
pub(crate) async fn connect(
    State(api): State<Api>,
    asked: Result<Query<Asked>, QueryRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    origin: Origin,
) -> Result<Response, Problem> {
    // Not the framework's words: they may quote the query.
    let Ok(Query(asked)) = asked else { return Err(Problem::of(Code::Malformed)) };
    let upgrade = upgrade.map_err(|_| Problem::new(Code::Malformed, "this address takes a WebSocket"))?;
    let version =
        Version::parse(asked.vsn.as_deref()).ok_or_else(|| Problem::new(Code::Malformed, "vsn is 2.0.0 or 1.0.0"))?;
    let opened = match asked.apikey.as_deref() {
        Some(key) => Identity::open(&api, origin.0, key).await,
        None => {
            api.failures.note(origin.0, Reason::Missing, Instant::now());
            Err(Problem::new(Code::Unauthenticated, "give a key as apikey"))
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
    let turn = api.streams.turn(&share, most).ok_or_else(|| super::stream::too_many(most))?;
    let held = api.tasks.token();
    let upgrade = upgrade.max_message_size(LARGEST).max_frame_size(LARGEST);
    Ok(upgrade.on_upgrade(async move |opened| {
        let _held = (turn, held);
        Socket::new(api, version, origin.0, secret).run(opened).await;
    }))
}
