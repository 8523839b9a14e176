//! One WebSocket: one task reads its frames and sends replies and changes.
//!
//! Invariants
//! - A channel is registered with the feed before its join gets a reply, and the reply is sent before any change. So
//!   the client gets every change that commits after the reply, exactly once.
//! - Nothing is sent to a channel after the reply to its leave.
//! - If a change cannot be delivered, the socket is closed: the client reconnects and reads the current state.
//! - The channels of a revoked or expired key end within seconds.

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use kernel::signals::metrics;
use serde_json::{Value, json};
use store::access::key::Secret;
use supabase::binding;
use supabase::frame::{Frame, FrameHeader, ProtocolVersion};
use tokio::time::{Instant, MissedTickBehavior};

use super::channels::{Channel, Channels};
use super::identity::{Denied, Identity};
use crate::feed::{DeliveryOrder, DropReason, NextChange, Subscription};
use crate::http::Api;

/// The largest number of channels of one socket.
const MOST_CHANNELS: usize = 100;
/// The largest number of bindings of all channels of a socket. It is bounded because each binding is checked for each
/// change.
const MOST_BINDINGS: usize = 200;
/// The longest name of a channel, in bytes.
const LONGEST_TOPIC: usize = 255;
/// The largest number of joins of one socket per second.
const MOST_JOINS: u32 = 20;
/// How often keys are checked again.
const TICK: Duration = Duration::from_secs(1);
/// After this time without a frame the socket is closed. Clients send a heartbeat every 25 s.
const SILENT: Duration = Duration::from_secs(90);
/// How long sending the close frame may take.
const GRACE: Duration = Duration::from_secs(1);

pub(super) struct Socket {
    api: Api,
    version: ProtocolVersion,
    from: IpAddr,
    secret: Secret,
    channels: Channels,
    subscription: Option<Subscription>,
    joins: (Instant, u32),
    last_frame_at: Instant,
}

/// Why a socket ends.
enum End {
    /// The client has disconnected, or reads too slowly.
    Cut,
    Close(u16, &'static str),
}

impl From<DropReason> for End {
    fn from(reason: DropReason) -> End {
        let code = if reason == DropReason::Slow { close_code::AGAIN } else { close_code::RESTART };
        End::Close(code, reason.message())
    }
}

impl Socket {
    pub(super) fn new(api: Api, version: ProtocolVersion, from: IpAddr, secret: Secret) -> Socket {
        let (now, channels) = (Instant::now(), Channels::default());
        Socket { api, version, from, secret, channels, subscription: None, joins: (now, 0), last_frame_at: now }
    }

    pub(super) async fn run(mut self, mut peer: WebSocket) {
        ::metrics::gauge!(metrics::CHANGE_SUBSCRIBERS.name, "transport" => "websocket").increment(1);
        let end = self.serve(&mut peer).await;
        if let End::Close(code, reason) = end {
            let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
            let _sent = tokio::time::timeout(GRACE, peer.send(close)).await;
        }
        ::metrics::gauge!(metrics::CHANGE_SUBSCRIBERS.name, "transport" => "websocket").decrement(1);
    }

    async fn serve(&mut self, peer: &mut WebSocket) -> End {
        let stop = self.api.stop.clone();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                () = stop.cancelled() => return DropReason::Stopping.into(),
                got = peer.recv() => match got {
                    Some(Ok(message)) => self.receive(peer, &message).await,
                    Some(Err(_)) | None => return End::Cut,
                },
                followed = next(&mut self.subscription) => match followed {
                    Ok(published) => {
                        let frames = self.channels.frames(self.version, &published);
                        self.send(peer, frames).await
                    }
                    Err(reason) => Err(reason.into()),
                },
                _ = tick.tick() => self.check_keys(peer).await,
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Sends frames. Fails if the peer reads so slowly that the feed drops it.
    async fn send(&self, peer: &mut WebSocket, frames: Vec<String>) -> Result<(), End> {
        let dropped = self.subscription.as_ref().map(Subscription::dropped).unwrap_or_default();
        for frame in frames {
            tokio::select! {
                sent = peer.send(Message::Text(frame.into())) => sent.map_err(|_| End::Cut)?,
                () = dropped.cancelled() => return Err(DropReason::Slow.into()),
                () = self.api.stop.cancelled() => return Err(DropReason::Stopping.into()),
            }
        }
        Ok(())
    }

    async fn receive(&mut self, peer: &mut WebSocket, message: &Message) -> Result<(), End> {
        self.last_frame_at = Instant::now();
        let text = match message {
            Message::Text(text) => text,
            Message::Close(_) => return Err(End::Cut),
            // Binary frames are broadcasts, which Forebay does not support. The WebSocket library answers pings.
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => return Ok(()),
        };
        let Some(frame) = Frame::decode(self.version, text) else { return Ok(()) };
        let ok = |response: Value| vec![frame.reply(self.version, "ok", &response)];
        let replies = match (frame.topic.as_str(), frame.event.as_str()) {
            ("phoenix", "heartbeat") => ok(json!({})),
            (_, "phx_join") => self.join(&frame).await,
            (_, "phx_leave") => self.leave(&frame),
            (_, "access_token") => self.refresh(&frame).await,
            _ if frame.reference.is_none() => Vec::new(),
            _ if self.channels.lock().contains_key(&frame.topic) => vec![frame.refusal(self.version, "not supported")],
            _ => vec![frame.refusal(self.version, "unmatched topic")],
        };
        self.send(peer, replies).await?;
        if self.channels.lock().is_empty() {
            self.subscription = None;
        }
        Ok(())
    }

    /// Joins a channel. A new join of a topic replaces the previous channel. The channel is registered with the feed
    /// before the reply is sent.
    async fn join(&mut self, frame: &Frame) -> Vec<String> {
        let replaced = self.channels.lock().remove(&frame.topic);
        let mut replies: Vec<String> =
            replaced.iter().map(|old| self.closed(&frame.topic, old.join_ref.as_deref())).collect();
        match self.admit(frame).await {
            Ok(echoed) => {
                let changes = !echoed.is_empty();
                replies.push(frame.reply(self.version, "ok", &json!({ "postgres_changes": echoed })));
                if changes {
                    let message = ("postgres_changes", "ok", "Subscribed to PostgreSQL");
                    replies.push(self.system(&frame.topic, frame.join_ref.as_deref(), message));
                }
            }
            Err(reason) => replies.push(frame.refusal(self.version, &reason)),
        }
        replies
    }

    async fn admit(&mut self, frame: &Frame) -> Result<Vec<Value>, String> {
        self.may_join()?;
        let token = frame.payload.get("access_token").and_then(Value::as_str);
        let identity = Identity::of(&self.api, Some(self.from), &self.secret, token).await;
        let identity = identity.map_err(|denied| denied.message().to_owned())?;
        let (bindings, echoed) = binding::read_join(&frame.payload).map_err(|refused| refused.to_string())?;
        if frame.topic.len() > LONGEST_TOPIC {
            return Err(format!("ConfigurationError: a channel's name has at most {LONGEST_TOPIC} bytes"));
        }
        let there: usize = self.channels.lock().values().map(|channel| channel.bindings.len()).sum();
        if there + bindings.len() > MOST_BINDINGS {
            return Err(format!("ChannelRateLimitReached: a socket has at most {MOST_BINDINGS} postgres_changes"));
        }
        let channel = Channel { join_ref: frame.join_ref.clone(), bindings, identity };
        self.channels.lock().insert(frame.topic.clone(), channel);
        if self.subscription.is_none() && !echoed.is_empty() {
            let channels = self.channels.clone();
            match self.api.feed.subscribe(DeliveryOrder::AtCommit, Box::new(move |change| channels.want(change))).await
            {
                Ok(subscription) => self.subscription = Some(subscription),
                Err(_away) => {
                    self.channels.lock().remove(&frame.topic);
                    return Err(Denied::Unavailable.message().to_owned());
                }
            }
        }
        Ok(echoed)
    }

    fn may_join(&mut self) -> Result<(), String> {
        if self.joins.0.elapsed() >= Duration::from_secs(1) {
            self.joins = (Instant::now(), 0);
        }
        self.joins.1 += 1;
        if self.joins.1 > MOST_JOINS {
            return Err(format!("ClientJoinRateLimitReached: at most {MOST_JOINS} joins a second"));
        }
        if self.channels.lock().len() >= MOST_CHANNELS {
            return Err(format!("ChannelRateLimitReached: a socket has at most {MOST_CHANNELS} channels"));
        }
        Ok(())
    }

    /// Leaves a channel. A request to leave a channel that a newer join replaced gets a reply and changes nothing.
    fn leave(&self, frame: &Frame) -> Vec<String> {
        let mut replies = vec![frame.reply(self.version, "ok", &json!({}))];
        let mut channels = self.channels.lock();
        if channels.get(&frame.topic).is_some_and(|channel| channel.join_ref == frame.join_ref) {
            channels.remove(&frame.topic);
            replies.push(self.closed(&frame.topic, frame.join_ref.as_deref()));
        }
        replies
    }

    /// Sets another key for a channel. The same key, no key, or a key for a channel that was replaced changes nothing.
    async fn refresh(&self, frame: &Frame) -> Vec<String> {
        let Some(token) = frame.payload.get("access_token").and_then(Value::as_str) else { return Vec::new() };
        if self.channels.lock().get(&frame.topic).is_none_or(|channel| channel.join_ref != frame.join_ref) {
            return Vec::new();
        }
        match Identity::of(&self.api, Some(self.from), &self.secret, Some(token)).await {
            Ok(identity) => {
                if let Some(channel) = self.channels.lock().get_mut(&frame.topic) {
                    channel.identity = identity;
                }
                Vec::new()
            }
            // The old key stays. A key that cannot be looked up now is looked up at the next refresh.
            Err(Denied::Unavailable | Denied::Limited) => Vec::new(),
            Err(denied) => self.expel(&frame.topic, denied),
        }
    }

    /// Ends channels whose key is no longer valid, and a socket without heartbeats.
    async fn check_keys(&mut self, peer: &mut WebSocket) -> Result<(), End> {
        if self.last_frame_at.elapsed() > SILENT {
            return Err(End::Close(close_code::NORMAL, "the client sent no heartbeat"));
        }
        let shown: Vec<(String, Secret)> =
            self.channels.lock().iter().map(|(topic, it)| (topic.clone(), it.identity.secret.clone())).collect();
        let mut frames = Vec::new();
        for (topic, secret) in shown {
            match Identity::of(&self.api, None, &self.secret, Some(secret.expose())).await {
                Ok(_) | Err(Denied::Unavailable) => {}
                Err(denied) => frames.extend(self.expel(&topic, denied)),
            }
        }
        self.send(peer, frames).await?;
        match Identity::of(&self.api, None, &self.secret, None).await {
            Err(Denied::Unavailable) | Ok(_) => Ok(()),
            Err(_) => Err(End::Close(close_code::POLICY, "the key is no longer valid")),
        }
    }

    fn expel(&self, topic: &str, denied: Denied) -> Vec<String> {
        let Some(channel) = self.channels.lock().remove(topic) else { return Vec::new() };
        let join_ref = channel.join_ref.as_deref();
        let message = ("system", "error", denied.message());
        vec![self.system(topic, join_ref, message), self.closed(topic, join_ref)]
    }

    fn closed(&self, topic: &str, join_ref: Option<&str>) -> String {
        let head = FrameHeader { join_ref, reference: join_ref, topic, event: "phx_close" };
        Frame::encode(self.version, &head, "{}")
    }

    fn system(&self, topic: &str, join_ref: Option<&str>, (extension, status, message): (&str, &str, &str)) -> String {
        let channel = topic.strip_prefix("realtime:").unwrap_or(topic);
        let payload = json!({ "extension": extension, "status": status, "message": message, "channel": channel });
        Frame::encode(
            self.version,
            &FrameHeader { join_ref, reference: None, topic, event: "system" },
            &payload.to_string(),
        )
    }
}

/// The next change. Waits forever for a socket without a subscription.
async fn next(subscription: &mut Option<Subscription>) -> NextChange {
    match subscription {
        Some(subscription) => subscription.next().await,
        None => std::future::pending().await,
    }
}
