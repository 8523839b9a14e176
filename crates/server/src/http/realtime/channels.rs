//! The channels of one socket. The task of the socket adds and removes channels; the feed reads them for each change.
//!
//! Invariants
//! - A topic has at most one channel. A new join replaces the old channel, so no change is sent twice.
//! - For each change the workspace of a channel is checked before its filters.

use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::change::Change;
use supabase::binding::{self, Binding, Recipients};
use supabase::frame::{Frame, FrameHeader, ProtocolVersion};
use supabase::payload;

use super::identity::Identity;
use crate::feed::PublishedChange;

#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub(super) join_ref: Option<String>,
    pub(super) bindings: Vec<Binding>,
    pub(super) identity: Identity,
}

/// The channels by topic. A clone shares the same channels.
#[derive(Clone, Debug, Default)]
pub(super) struct Channels(Arc<Mutex<BTreeMap<String, Channel>>>);

impl Channel {
    fn matches(&self, change: &Change) -> Vec<Recipients<'_>> {
        match change.is_visible_to(self.identity.workspace) {
            true => binding::find_recipients(&self.bindings, change),
            false => Vec::new(),
        }
    }
}

impl Channels {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Channel>> {
        self.0.lock()
    }

    /// Whether any channel matches this change.
    pub(super) fn want(&self, change: &Change) -> bool {
        self.lock().values().any(|channel| !channel.matches(change).is_empty())
    }

    /// The frames of a change: one for each matching channel and each selection of columns.
    pub(super) fn frames(&self, version: ProtocolVersion, published: &PublishedChange) -> Vec<String> {
        let channels = self.lock();
        let mut frames = Vec::new();
        for (topic, channel) in channels.iter() {
            let join_ref = channel.join_ref.as_deref();
            let head = FrameHeader { join_ref, reference: None, topic, event: "postgres_changes" };
            for matched in channel.matches(&published.change) {
                let ids = serde_json::Value::from(matched.ids);
                let data = match matched.columns {
                    None => Cow::Borrowed(published.socket_payload()),
                    columns => Cow::Owned(payload::encode_change(&published.change, columns)),
                };
                frames.push(Frame::encode(version, &head, &format!("{{\"ids\":{ids},\"data\":{data}}}")));
            }
        }
        frames
    }
}
