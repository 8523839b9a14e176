//! One socket: frames in, replies and changes out, in one task.
//!
//! Invariants
//! - A channel is known to the feed before its join is answered, and the answer is sent before any change: what commits
//!   after the client is told that it is subscribed comes, once.
//! - Nothing is sent to a channel after its leave was answered.
//! - What cannot be delivered ends in a closed socket, which makes the client come back and look; never in silence.
//! - A key that was revoked or has expired ends its channels within seconds.

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use kernel::signals::metrics;
use serde_json::{Value, json};
use store::access::key::Secret;
use supabase::binding;
use supabase::frame::{Frame, Head, Version};
use tokio::time::{Instant, MissedTickBehavior};

use super::channels::{Channel, Channels};
use super::identity::{Denied, Identity};
use crate::feed::{Followed, Following, Gone, Order};
use crate::http::Api;

/// The most channels of one socket.
const MOST_CHANNELS: usize = 100;
/// The most bindings of all its channels together: each is asked about each change.
const MOST_BINDINGS: usize = 200;
/// The longest name of a channel, in bytes.
const LONGEST_TOPIC: usize = 255;
/// The most joins of one socket in a second.
const MOST_JOINS: u32 = 20;
/// How often keys are looked at again.
const TICK: Duration = Duration::from_secs(1);
/// A client that is there sends a heartbeat every 25 s.
const SILENT: Duration = Duration::from_secs(90);
/// How long a peer may take to hear that its socket is closed.
const GRACE: Duration = Duration::from_secs(1);

pub(super) struct Socket {
    api: Api,
    version: Version,
    from: IpAddr,
    secret: Secret,
    channels: Channels,
    following: Option<Following>,
    joins: (Instant, u32),
    heard: Instant,
}

/// Why a socket ends.
enum End {
    /// The peer is gone, or does not read.
    Cut,
    Close(u16, &'static str),
}

impl From<Gone> for End {
    fn from(gone: Gone) -> End {
        let code = if gone == Gone::Slow { close_code::AGAIN } else { close_code::RESTART };
        End::Close(code, gone.message())
    }
}

impl Socket {
    pub(super) fn new(api: Api, version: Version, from: IpAddr, secret: Secret) -> Socket {
        let (now, channels) = (Instant::now(), Channels::default());
        Socket { api, version, from, secret, channels, following: None, joins: (now, 0), heard: now }
    }

    pub(super) async fn run(mut self, mut peer: WebSocket) {
        ::metrics::gauge!(metrics::FEED_FOLLOWERS.name, "face" => "socket").increment(1);
        let end = self.serve(&mut peer).await;
        if let End::Close(code, reason) = end {
            let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
            let _told = tokio::time::timeout(GRACE, peer.send(close)).await;
        }
        ::metrics::gauge!(metrics::FEED_FOLLOWERS.name, "face" => "socket").decrement(1);
    }

    async fn serve(&mut self, peer: &mut WebSocket) -> End {
        let stop = self.api.stop.clone();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                () = stop.cancelled() => return Gone::Stopping.into(),
                got = peer.recv() => match got {
                    Some(Ok(message)) => self.hear(peer, &message).await,
                    Some(Err(_)) | None => return End::Cut,
                },
                followed = next(&mut self.following) => match followed {
                    Ok(shown) => {
                        let frames = self.channels.frames(self.version, &shown);
                        self.send(peer, frames).await
                    }
                    Err(gone) => Err(gone.into()),
                },
                _ = tick.tick() => self.look_again(peer).await,
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Sends frames, unless the peer stops reading for so long that the feed drops it.
    async fn send(&self, peer: &mut WebSocket, frames: Vec<String>) -> Result<(), End> {
        let dropped = self.following.as_ref().map(Following::dropped).unwrap_or_default();
        for frame in frames {
            tokio::select! {
                sent = peer.send(Message::Text(frame.into())) => sent.map_err(|_| End::Cut)?,
                () = dropped.cancelled() => return Err(Gone::Slow.into()),
                () = self.api.stop.cancelled() => return Err(Gone::Stopping.into()),
            }
        }
        Ok(())
    }

    async fn hear(&mut self, peer: &mut WebSocket, message: &Message) -> Result<(), End> {
        self.heard = Instant::now();
        let text = match message {
            Message::Text(text) => text,
            Message::Close(_) => return Err(End::Cut),
            // Broadcasts come as binary frames; the rest is the protocol's own.
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
            self.following = None;
        }
        Ok(())
    }

    /// A join replaces the one before it, and is answered when the feed knows of it.
    async fn join(&mut self, frame: &Frame) -> Vec<String> {
        let replaced = self.channels.lock().remove(&frame.topic);
        let mut replies: Vec<String> =
            replaced.iter().map(|old| self.closed(&frame.topic, old.join_ref.as_deref())).collect();
        match self.admit(frame).await {
            Ok(echoed) => {
                let changes = !echoed.is_empty();
                replies.push(frame.reply(self.version, "ok", &json!({ "postgres_changes": echoed })));
                if changes {
                    let said = ("postgres_changes", "ok", "Subscribed to PostgreSQL");
                    replies.push(self.system(&frame.topic, frame.join_ref.as_deref(), said));
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
        let (bindings, echoed) = binding::read(&frame.payload).map_err(|refused| refused.to_string())?;
        if frame.topic.len() > LONGEST_TOPIC {
            return Err(format!("ConfigurationError: a channel's name has at most {LONGEST_TOPIC} bytes"));
        }
        let there: usize = self.channels.lock().values().map(|channel| channel.bindings.len()).sum();
        if there + bindings.len() > MOST_BINDINGS {
            return Err(format!("ChannelRateLimitReached: a socket has at most {MOST_BINDINGS} postgres_changes"));
        }
        let channel = Channel { join_ref: frame.join_ref.clone(), bindings, identity };
        self.channels.lock().insert(frame.topic.clone(), channel);
        if self.following.is_none() && !echoed.is_empty() {
            let channels = self.channels.clone();
            match self.api.feed.follow(Order::Live, Box::new(move |change| channels.want(change))).await {
                Ok(following) => self.following = Some(following),
                Err(_away) => {
                    self.channels.lock().remove(&frame.topic);
                    return Err(Denied::Away.message().to_owned());
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

    /// A leave of a join that is over is answered, and changes nothing.
    fn leave(&self, frame: &Frame) -> Vec<String> {
        let mut replies = vec![frame.reply(self.version, "ok", &json!({}))];
        let mut channels = self.channels.lock();
        if channels.get(&frame.topic).is_some_and(|channel| channel.join_ref == frame.join_ref) {
            channels.remove(&frame.topic);
            replies.push(self.closed(&frame.topic, frame.join_ref.as_deref()));
        }
        replies
    }

    /// Another key for a channel; the same or none changes nothing, and neither does one for a join that is over.
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
            // What it had still holds; a key that cannot be looked up now is looked up at the next refresh.
            Err(Denied::Away | Denied::Limited) => Vec::new(),
            Err(denied) => self.expel(&frame.topic, denied),
        }
    }

    /// Ends what is no longer allowed, and a socket whose client is silent.
    async fn look_again(&mut self, peer: &mut WebSocket) -> Result<(), End> {
        if self.heard.elapsed() > SILENT {
            return Err(End::Close(close_code::NORMAL, "no heartbeat came"));
        }
        let shown: Vec<(String, Secret)> =
            self.channels.lock().iter().map(|(topic, it)| (topic.clone(), it.identity.secret.clone())).collect();
        let mut frames = Vec::new();
        for (topic, secret) in shown {
            match Identity::of(&self.api, None, &self.secret, Some(secret.expose())).await {
                Ok(_) | Err(Denied::Away) => {}
                Err(denied) => frames.extend(self.expel(&topic, denied)),
            }
        }
        self.send(peer, frames).await?;
        match Identity::of(&self.api, None, &self.secret, None).await {
            Err(Denied::Away) | Ok(_) => Ok(()),
            Err(_) => Err(End::Close(close_code::POLICY, "the key is not valid any more")),
        }
    }

    fn expel(&self, topic: &str, denied: Denied) -> Vec<String> {
        let Some(channel) = self.channels.lock().remove(topic) else { return Vec::new() };
        let join_ref = channel.join_ref.as_deref();
        let said = ("system", "error", denied.message());
        vec![self.system(topic, join_ref, said), self.closed(topic, join_ref)]
    }

    fn closed(&self, topic: &str, join_ref: Option<&str>) -> String {
        let head = Head { join_ref, reference: join_ref, topic, event: "phx_close" };
        Frame::write(self.version, &head, "{}")
    }

    fn system(&self, topic: &str, join_ref: Option<&str>, (extension, status, message): (&str, &str, &str)) -> String {
        let channel = topic.strip_prefix("realtime:").unwrap_or(topic);
        let said = json!({ "extension": extension, "status": status, "message": message, "channel": channel });
        Frame::write(self.version, &Head { join_ref, reference: None, topic, event: "system" }, &said.to_string())
    }
}

/// The next change; never any for a socket that follows nothing.
async fn next(following: &mut Option<Following>) -> Followed {
    match following {
        Some(following) => following.next().await,
        None => std::future::pending().await,
    }
}
