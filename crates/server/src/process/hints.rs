//! Hints: who may have something to do. They wake, they are never trusted, and losing one costs at
//! most a poll.
//!
//! Invariants
//! - Between processes a hint is a NOTIFY sent by one task, outside any transaction that matters,
//!   many workspaces in one: measured, a NOTIFY in the hot transaction makes commits several times
//!   slower.
//!
//! Not here: what a hint leads to (`queue::dispatch`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::ids::WorkspaceId;
use store::connect::Target;
use store::feed::BELL;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// What the dispatcher may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Something new of this workspace may be ready.
    Enqueued(WorkspaceId),
    /// An execution of this workspace ended then, and freed its slot.
    Freed(WorkspaceId, Instant),
    /// This workspace may have something ready, and room for it.
    Workspace(WorkspaceId),
    /// The engine, or the line before it, may have room again.
    Room,
    /// Look everywhere.
    Sweep,
}

/// What the dispatchers of other processes may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remote {
    /// This workspace may have something ready.
    Ready(WorkspaceId),
    /// It has, and this process has no room for it.
    NoRoom(WorkspaceId),
}

/// Where hints go: to this process's dispatcher if it has one, else to the others'.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    local: Option<mpsc::UnboundedSender<Hint>>,
    remote: Option<mpsc::UnboundedSender<Remote>>,
}

const CHANNEL: &str = "forebay_hint";
/// A process has ended.
const GOODBYE: &str = "goodbye";
/// Something came for a run that another process has, or that is parked.
const CALLED: &str = "called";
/// Rows of the projection were changed: the bell says no more than that it rang.
const RUNG: &str = "";
/// How long hints to others gather.
const GATHER: Duration = Duration::from_millis(10);
/// A notification holds 8,000 bytes; an id is 37.
const MOST: usize = 200;

impl Hints {
    pub(crate) fn new(
        local: Option<mpsc::UnboundedSender<Hint>>,
        remote: Option<mpsc::UnboundedSender<Remote>>,
    ) -> Hints {
        Hints { local, remote }
    }

    /// Something of this workspace may be ready to start, and may have room.
    pub(crate) fn ready(&self, workspace: WorkspaceId) {
        self.tell(workspace, Hint::Workspace(workspace));
    }

    /// Something new waits in this workspace.
    pub(crate) fn enqueued(&self, workspace: WorkspaceId) {
        self.tell(workspace, Hint::Enqueued(workspace));
    }

    /// Something of these workspaces is ready, and this process has no room for it: others may.
    pub(crate) fn no_room(&self, workspaces: impl Iterator<Item = WorkspaceId>) {
        let Some(remote) = &self.remote else { return };
        for workspace in workspaces.take(MOST) {
            let _stopping = remote.send(Remote::NoRoom(workspace));
        }
    }

    /// This process may claim again.
    pub(crate) fn room(&self) {
        if let Some(local) = &self.local {
            let _stopping = local.send(Hint::Room);
        }
    }

    fn tell(&self, workspace: WorkspaceId, hint: Hint) {
        match (&self.local, &self.remote) {
            (Some(local), _) => drop(local.send(hint).is_ok()),
            (None, Some(remote)) => drop(remote.send(Remote::Ready(workspace)).is_ok()),
            (None, None) => {}
        }
    }
}

/// Sends hints to other processes until told to stop.
pub(crate) async fn send(target: Target, mut inbox: mpsc::UnboundedReceiver<Remote>, stop: CancellationToken) {
    let mut client = None;
    while let Some(first) = tokio::select! { got = inbox.recv() => got, () = stop.cancelled() => None } {
        tokio::time::sleep(GATHER).await;
        let mut gathered = vec![first];
        while let Ok(more) = inbox.try_recv() {
            gathered.push(more);
        }
        let payload = payload(&gathered);
        if client.is_none() {
            client = target.connect().await.ok();
        }
        let Some(sender) = &client else { continue };
        if sender.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &payload]).await.is_err() {
            client = None;
        }
    }
}

/// What others are told: the workspaces by name, or to look everywhere if there are too many. What a process only has
/// no room for never makes the others look everywhere: they would find it again, and tell it again.
fn payload(gathered: &[Remote]) -> String {
    let (mut ready, mut no_room) = (BTreeSet::new(), BTreeSet::new());
    for told in gathered {
        match told {
            Remote::Ready(workspace) => ready.insert(*workspace),
            Remote::NoRoom(workspace) => no_room.insert(*workspace),
        };
    }
    if ready.len() > MOST {
        return "*".to_owned();
    }
    let some = no_room.difference(&ready).take(MOST - ready.len());
    ready.iter().chain(some).map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Where what other processes say goes.
pub(crate) struct Inbox {
    /// The dispatcher.
    pub(crate) local: mpsc::UnboundedSender<Hint>,
    /// Asks for a heartbeat now.
    pub(crate) beat: Arc<Notify>,
    /// Somebody changed jobs, or offers a task.
    pub(crate) rung: Arc<Notify>,
    /// Something came for a run.
    pub(crate) called: Arc<Notify>,
}

impl Inbox {
    fn sweep(&self) {
        let _gone = self.local.send(Hint::Sweep);
    }

    fn take(&self, payload: &str) {
        match payload {
            GOODBYE => {
                self.beat.notify_one();
                self.sweep();
            }
            CALLED => {
                self.beat.notify_one();
                self.called.notify_one();
            }
            "*" => self.sweep(),
            RUNG => self.rung.notify_one(),
            list => {
                for workspace in list.split(',').filter_map(|id| id.parse().ok()) {
                    let _gone = self.local.send(Hint::Workspace(workspace));
                }
            }
        }
    }
}

/// Receives hints from other processes until told to stop. A lost connection may have lost hints,
/// so a new one starts with a sweep.
pub(crate) async fn receive(target: Target, inbox: Inbox, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Ok((client, mut notifications)) = target.listen(&[CHANNEL, BELL]).await {
            let _keeps_listening = client;
            inbox.sweep();
            while let Some(payload) = tokio::select! {
                got = notifications.recv() => got,
                () = stop.cancelled() => None,
            } {
                inbox.take(&payload);
            }
        }
        tokio::select! { () = tokio::time::sleep(Duration::from_secs(1)) => {}, () = stop.cancelled() => {} }
    }
}

/// Tells other processes that something came for a run of theirs, many at a time, until told to stop.
pub(crate) async fn call(target: Target, mut inbox: mpsc::UnboundedReceiver<()>, stop: CancellationToken) {
    let mut client = None;
    while let Some(()) = tokio::select! { got = inbox.recv() => got, () = stop.cancelled() => None } {
        tokio::time::sleep(GATHER).await;
        while inbox.try_recv().is_ok() {}
        if client.is_none() {
            client = target.connect().await.ok();
        }
        let Some(sender) = &client else { continue };
        if sender.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &CALLED]).await.is_err() {
            client = None;
        }
    }
}

/// Passes the bell on to those who wait in a process that has no dispatcher.
pub(crate) async fn hear(target: Target, rung: Arc<Notify>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Ok((client, mut rings)) = target.listen(&[BELL]).await {
            let _keeps_listening = client;
            rung.notify_waiters();
            while tokio::select! { got = rings.recv() => got.is_some(), () = stop.cancelled() => false } {
                rung.notify_waiters();
            }
        }
        tokio::select! { () = tokio::time::sleep(Duration::from_secs(1)) => {}, () = stop.cancelled() => {} }
    }
}

/// Tells the others that a process has just ended, so that they look at once for what it left.
pub(crate) async fn goodbye(target: &Target) {
    let told = async {
        let sender = target.connect().await.ok()?;
        sender.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &GOODBYE]).await.ok()
    };
    if !matches!(tokio::time::timeout(Duration::from_secs(1), told).await, Ok(Some(_))) {
        tracing::debug!("Nobody could be told of the goodbye; the next heartbeats find it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn workspace(n: usize) -> WorkspaceId {
        WorkspaceId(Uuid::from_u128(n as u128 + 1))
    }

    #[test]
    fn too_many_ready_workspaces_are_told_as_a_sweep_and_those_without_room_never_are() {
        let ready = |many: usize| (0..many).map(|n| Remote::Ready(workspace(n)));
        let no_room = |many: usize| (0..many).map(|n| Remote::NoRoom(workspace(n + 1_000)));
        let names = |told: Vec<Remote>| match payload(&told).as_str() {
            "*" => None,
            list => Some(list.split(',').count()),
        };
        assert_eq!(names(ready(MOST).collect()), Some(MOST));
        assert_eq!(names(ready(MOST + 1).collect()), None);
        assert_eq!(names(no_room(MOST + 1).collect()), Some(MOST));
        assert_eq!(names(ready(5).chain(no_room(MOST)).collect()), Some(MOST));
        assert_eq!(names(vec![Remote::Ready(workspace(1)), Remote::NoRoom(workspace(1))]), Some(1));
    }
}
