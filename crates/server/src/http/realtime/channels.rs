//! The channels of one socket, which its task changes and the feed reads.
//!
//! Invariants
//! - One channel a topic: a new join replaces the old one, so no change comes twice.
//! - A channel's scope is asked beside its filters, and before them.

use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::change::Change;
use supabase::binding::{self, Binding, Told};
use supabase::frame::{Frame, Head, Version};
use supabase::payload;

use super::identity::Identity;
use crate::feed::Shown;

#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub(super) join_ref: Option<String>,
    pub(super) bindings: Vec<Binding>,
    pub(super) identity: Identity,
}

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Channels(Arc<Mutex<BTreeMap<String, Channel>>>);

impl Channel {
    fn told(&self, change: &Change) -> Vec<Told<'_>> {
        match change.is_seen_by(self.identity.workspace) {
            true => binding::matching(&self.bindings, change),
            false => Vec::new(),
        }
    }
}

impl Channels {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Channel>> {
        self.0.lock()
    }

    /// Is this change for any channel?
    pub(super) fn want(&self, change: &Change) -> bool {
        self.lock().values().any(|channel| !channel.told(change).is_empty())
    }

    /// The frames of a change: one for each channel that it is for, and each choice of columns.
    pub(super) fn frames(&self, version: Version, shown: &Shown) -> Vec<String> {
        let channels = self.lock();
        let mut frames = Vec::new();
        for (topic, channel) in channels.iter() {
            let join_ref = channel.join_ref.as_deref();
            let head = Head { join_ref, reference: None, topic, event: "postgres_changes" };
            for told in channel.told(&shown.change) {
                let ids = serde_json::Value::from(told.ids);
                let data = match told.columns {
                    None => Cow::Borrowed(shown.data()),
                    columns => Cow::Owned(payload::data(&shown.change, columns)),
                };
                frames.push(Frame::write(version, &head, &format!("{{\"ids\":{ids},\"data\":{data}}}")));
            }
        }
        frames
    }
}
