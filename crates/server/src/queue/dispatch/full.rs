//! The workspaces that were found at capacity while items waited, and when to ask them again.
//!
//! Invariants
//! - A workspace that was just found at capacity is not asked for each new item. It is asked once, `RECHECK_AFTER`
//!   after the first of them, unless a claim asked it meanwhile: another process may have freed a slot without a
//!   notification.
//! - Reaching capacity is reported once, until the workspace has room again.
//!
//! Not here: asking (`queue::dispatch`).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use kernel::ids::WorkspaceId;

/// For this long after a workspace was found at capacity, a new item in it causes no claim.
const RECHECK_AFTER: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct FullWorkspaces {
    /// When each was last found at capacity.
    found: BTreeMap<WorkspaceId, Instant>,
    /// Those in which a slot was freed since then, and when it was freed.
    freed: BTreeMap<WorkspaceId, Instant>,
    /// Those to ask again because of a new item, the earliest first.
    rechecks: VecDeque<(Instant, WorkspaceId)>,
    /// The times of `rechecks` that still hold: no claim has asked the workspace since.
    waiting: BTreeMap<WorkspaceId, Instant>,
}

impl FullWorkspaces {
    /// A claim found the workspace at capacity. True if it was not so before.
    pub(super) fn insert(&mut self, workspace: WorkspaceId, now: Instant) -> bool {
        self.waiting.remove(&workspace);
        self.found.insert(workspace, now).is_none()
    }

    /// The workspace may have room: a claim found so, or will ask it.
    pub(super) fn remove(&mut self, workspace: WorkspaceId) {
        self.waiting.remove(&workspace);
        self.found.remove(&workspace);
    }

    pub(super) fn retain(&mut self, keep: impl Fn(WorkspaceId) -> bool) {
        self.found.retain(|workspace, _| keep(*workspace));
    }

    /// A new item arrived. True if the workspace was found at capacity just now: then it is asked again later.
    pub(super) fn defer(&mut self, workspace: WorkspaceId, now: Instant) -> bool {
        let just_found = self.found.get(&workspace).is_some_and(|found| now.duration_since(*found) < RECHECK_AFTER);
        if just_found && !self.waiting.contains_key(&workspace) {
            self.waiting.insert(workspace, now + RECHECK_AFTER);
            self.rechecks.push_back((now + RECHECK_AFTER, workspace));
        }
        just_found
    }

    /// Ends when the next workspace is to be asked again; never if there is none.
    pub(super) async fn recheck_due(&self) {
        match self.next_recheck() {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    }

    fn next_recheck(&self) -> Option<Instant> {
        self.rechecks.front().map(|(at, _)| *at)
    }

    /// Takes the next workspace whose time to be asked again has come.
    pub(super) fn take_recheck(&mut self, now: Instant) -> Option<WorkspaceId> {
        while let Some((at, workspace)) = self.rechecks.pop_front_if(|(at, _)| *at <= now) {
            if self.waiting.get(&workspace) == Some(&at) {
                self.waiting.remove(&workspace);
                return Some(workspace);
            }
        }
        None
    }

    /// A slot of the workspace was freed at this time.
    pub(super) fn record_freed(&mut self, workspace: WorkspaceId, at: Instant) {
        if self.found.contains_key(&workspace) {
            self.freed.entry(workspace).or_insert(at);
        }
    }

    /// When the first slot was freed since the workspace was found at capacity, and not used since then.
    pub(super) fn take_freed(&mut self, workspace: WorkspaceId) -> Option<Instant> {
        self.freed.remove(&workspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn new_items_of_a_full_workspace_cause_one_question_a_moment_later() {
        let (workspace, start) = (WorkspaceId(Uuid::from_u128(1)), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        let mut full = FullWorkspaces::default();
        assert!(!full.defer(workspace, start), "it is not full");
        assert!(full.insert(workspace, start));
        assert!(!full.insert(workspace, start), "reported once");
        assert!(full.defer(workspace, after(10)) && full.defer(workspace, after(20)));
        assert_eq!(full.next_recheck(), Some(after(110)));
        assert_eq!(full.take_recheck(after(109)), None);
        assert_eq!(full.take_recheck(after(110)), Some(workspace));
        assert_eq!((full.take_recheck(after(500)), full.next_recheck()), (None, None));
        assert!(!full.defer(workspace, after(100)), "found long ago: it is asked immediately");
        full.remove(workspace);
        assert!(full.insert(workspace, after(200)), "reported again");
        assert!(full.defer(workspace, after(210)));
        full.insert(workspace, after(250));
        assert_eq!(full.take_recheck(after(320)), None, "a claim has asked it since");
        assert!(full.defer(workspace, after(340)));
        assert_eq!(full.take_recheck(after(440)), Some(workspace));
    }
}
