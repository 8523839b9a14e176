//! The channels of one socket, which its task changes and the feed reads.
//!
//! Invariants
//! - One channel a topic: a new join replaces the old one, so no change comes twice.
//! - A channel's scope is asked beside its filters, and before them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernel::realtime::Change;
use kernel::realtime::binding::{self, Binding};
use kernel::realtime::frame::{Frame, Head, Version};

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
    fn ids(&self, change: &Change) -> Vec<u64> {
        match change.is_seen_by(self.identity.workspace) {
            true => binding::matching(&self.bindings, change),
            false => Vec::new(),
        }
    }
}

impl Channels {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Channel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is this change for any channel?
    pub(super) fn want(&self, change: &Change) -> bool {
        self.lock().values().any(|channel| !channel.ids(change).is_empty())
    }

    /// The frames of a change, one for each channel that it is for.
    pub(super) fn frames(&self, version: Version, shown: &Shown) -> Vec<String> {
        let channels = self.lock();
        let told = channels.iter().filter_map(|(topic, channel)| {
            let ids = channel.ids(&shown.change);
            let join_ref = channel.join_ref.as_deref();
            let head = Head { join_ref, reference: None, topic, event: "postgres_changes" };
            let ids = serde_json::to_string(&ids).ok().filter(|_| !ids.is_empty())?;
            Some(Frame::write(version, &head, &format!("{{\"ids\":{ids},\"data\":{}}}", shown.data())))
        });
        told.collect()
    }
}
