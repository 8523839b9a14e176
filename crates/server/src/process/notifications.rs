//! Notifications: hints that a workspace may have an item to start, or that a run may have a signal to read. A
//! notification only wakes a loop, which then reads the database. If a notification is lost, the work is found at the
//! next poll.
//!
//! Invariants
//! - Between processes a notification is a PostgreSQL NOTIFY. A separate task sends it, not the transaction that claims
//!   or ends executions, and one NOTIFY names many workspaces. In measurements, a NOTIFY inside that transaction made
//!   commits several times slower.
//! - The exception is the notification that rows have changed (`CHANGE_CHANNEL`): the transaction that changes them
//!   sends it, but at most one open transaction at a time does so.
//!
//! Not here: what the dispatcher does when it is notified (`queue::dispatch`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::ids::WorkspaceId;
use store::connect::Target;
use store::feed::CHANGE_CHANNEL;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// A notification to the dispatcher of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notification {
    /// A new item was enqueued in this workspace, and may be ready.
    Enqueued(WorkspaceId),
    /// An execution of this workspace ended at this `Instant` and freed its slot.
    SlotFreed(WorkspaceId, Instant),
    /// This workspace may have a ready item and a free slot.
    Ready(WorkspaceId),
    /// The engine, or the limit on starts in flight, may have room again.
    Room,
    /// Any workspace may have ready items: all shards are swept.
    SweepAll,
}

/// A notification to the dispatchers of other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteNotification {
    /// This workspace may have a ready item.
    Ready(WorkspaceId),
    /// This workspace has a ready item, and the sending process has no room for it.
    NoRoom(WorkspaceId),
}

/// Sends notifications: to the dispatcher of this process if there is one, else to those of other processes.
#[derive(Clone, Debug)]
pub(crate) struct Notifier {
    local: Option<mpsc::UnboundedSender<Notification>>,
    remote: Option<mpsc::UnboundedSender<RemoteNotification>>,
}

/// The PostgreSQL channel that dispatchers listen to.
const CHANNEL: &str = "forebay_notification";
/// Payload: a process has ended.
const PROCESS_ENDED: &str = "process ended";
/// Payload: a signal is stored for a run that another process owns, or that is parked.
const RUN_SIGNALED: &str = "run signaled";
/// Payload of `CHANGE_CHANNEL`: jobs, events or tasks changed.
const ROWS_CHANGED: &str = "";
/// How long notifications for other processes are collected before they are sent.
const COLLECT_FOR: Duration = Duration::from_millis(10);
/// The most workspaces in one NOTIFY, which holds 8,000 bytes; an id takes 37.
const MAX_WORKSPACES: usize = 200;

impl Notifier {
    pub(crate) fn new(
        local: Option<mpsc::UnboundedSender<Notification>>,
        remote: Option<mpsc::UnboundedSender<RemoteNotification>>,
    ) -> Notifier {
        Notifier { local, remote }
    }

    /// Notifies a dispatcher that this workspace may have a ready item and a free slot.
    pub(crate) fn notify_ready(&self, workspace: WorkspaceId) {
        self.notify(workspace, Notification::Ready(workspace));
    }

    /// Notifies a dispatcher that a new item was enqueued in this workspace.
    pub(crate) fn notify_enqueued(&self, workspace: WorkspaceId) {
        self.notify(workspace, Notification::Enqueued(workspace));
    }

    /// Notifies other processes that these workspaces have ready items for which this process has no room.
    pub(crate) fn notify_no_room(&self, workspaces: impl Iterator<Item = WorkspaceId>) {
        let Some(remote) = &self.remote else { return };
        for workspace in workspaces.take(MAX_WORKSPACES) {
            let _stopping = remote.send(RemoteNotification::NoRoom(workspace));
        }
    }

    /// Notifies the dispatcher of this process that there is room to claim again.
    pub(crate) fn notify_room(&self) {
        if let Some(local) = &self.local {
            let _stopping = local.send(Notification::Room);
        }
    }

    fn notify(&self, workspace: WorkspaceId, notification: Notification) {
        match (&self.local, &self.remote) {
            (Some(local), _) => drop(local.send(notification).is_ok()),
            (None, Some(remote)) => drop(remote.send(RemoteNotification::Ready(workspace)).is_ok()),
            (None, None) => {}
        }
    }
}

/// Sends notifications to the dispatchers of other processes until `stop` is cancelled.
pub(crate) async fn send_to_dispatchers(
    target: Target,
    mut outgoing: mpsc::UnboundedReceiver<RemoteNotification>,
    stop: CancellationToken,
) {
    let mut client = None;
    while let Some(first) = tokio::select! { next = outgoing.recv() => next, () = stop.cancelled() => None } {
        tokio::time::sleep(COLLECT_FOR).await;
        let mut collected = vec![first];
        while let Ok(more) = outgoing.try_recv() {
            collected.push(more);
        }
        let payload = payload(&collected);
        if client.is_none() {
            client = target.connect().await.ok();
        }
        let Some(sender) = &client else { continue };
        if sender.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &payload]).await.is_err() {
            client = None;
        }
    }
}

/// The payload for other processes: the ids of the workspaces, or `*` (sweep all shards) if too many are ready.
/// Workspaces for which this process only lacks room never cause `*`: after a sweep, every full process would find them
/// too and send the same notification again.
fn payload(notifications: &[RemoteNotification]) -> String {
    let (mut ready, mut no_room) = (BTreeSet::new(), BTreeSet::new());
    for notification in notifications {
        match notification {
            RemoteNotification::Ready(workspace) => ready.insert(*workspace),
            RemoteNotification::NoRoom(workspace) => no_room.insert(*workspace),
        };
    }
    if ready.len() > MAX_WORKSPACES {
        return "*".to_owned();
    }
    let rest = no_room.difference(&ready).take(MAX_WORKSPACES - ready.len());
    ready.iter().chain(rest).map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The parts of this process that notifications from other processes wake.
pub(crate) struct Recipients {
    pub(crate) dispatcher: mpsc::UnboundedSender<Notification>,
    /// Triggers the next heartbeat immediately.
    pub(crate) heartbeat: Arc<Notify>,
    /// Notified when rows of jobs, events or tasks have changed.
    pub(crate) rows_changed: Arc<Notify>,
    /// Notified when a signal is stored for a run.
    pub(crate) run_signaled: Arc<Notify>,
}

impl Recipients {
    fn sweep_all(&self) {
        let _stopping = self.dispatcher.send(Notification::SweepAll);
    }

    fn deliver(&self, payload: &str) {
        match payload {
            PROCESS_ENDED => {
                self.heartbeat.notify_one();
                self.sweep_all();
            }
            RUN_SIGNALED => {
                self.heartbeat.notify_one();
                self.run_signaled.notify_one();
            }
            "*" => self.sweep_all(),
            ROWS_CHANGED => self.rows_changed.notify_one(),
            list => {
                for workspace in list.split(',').filter_map(|id| id.parse().ok()) {
                    let _stopping = self.dispatcher.send(Notification::Ready(workspace));
                }
            }
        }
    }
}

/// Receives notifications from other processes until `stop` is cancelled. Notifications may have been lost with a lost
/// connection, so every new connection starts with a sweep of all shards.
pub(crate) async fn receive_notifications(target: Target, recipients: Recipients, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Ok((client, mut notifications)) = target.listen(&[CHANNEL, CHANGE_CHANNEL]).await {
            let _keeps_listening = client;
            recipients.sweep_all();
            while let Some(payload) = tokio::select! {
                next = notifications.recv() => next,
                () = stop.cancelled() => None,
            } {
                recipients.deliver(&payload);
            }
        }
        tokio::select! { () = tokio::time::sleep(Duration::from_secs(1)) => {}, () = stop.cancelled() => {} }
    }
}

/// Notifies other processes that signals are stored for their runs, until `stop` is cancelled. One NOTIFY covers all
/// signals that were stored in the meantime.
pub(crate) async fn notify_signaled_runs(
    target: Target,
    mut outgoing: mpsc::UnboundedReceiver<()>,
    stop: CancellationToken,
) {
    let mut client = None;
    while let Some(()) = tokio::select! { next = outgoing.recv() => next, () = stop.cancelled() => None } {
        tokio::time::sleep(COLLECT_FOR).await;
        while outgoing.try_recv().is_ok() {}
        if client.is_none() {
            client = target.connect().await.ok();
        }
        let Some(sender) = &client else { continue };
        if sender.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &RUN_SIGNALED]).await.is_err() {
            client = None;
        }
    }
}

/// Wakes requests that wait for tasks, in a process without a dispatcher, until `stop` is cancelled.
pub(crate) async fn receive_row_changes(target: Target, rows_changed: Arc<Notify>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Ok((client, mut notifications)) = target.listen(&[CHANGE_CHANNEL]).await {
            let _keeps_listening = client;
            rows_changed.notify_waiters();
            while tokio::select! { next = notifications.recv() => next.is_some(), () = stop.cancelled() => false } {
                rows_changed.notify_waiters();
            }
        }
        tokio::select! { () = tokio::time::sleep(Duration::from_secs(1)) => {}, () = stop.cancelled() => {} }
    }
}

/// Notifies other processes that this process has ended, so that they take over its work immediately.
pub(crate) async fn send_process_ended(target: &Target) {
    let sent = async {
        let sender = target.connect().await.ok()?;
        sender.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &PROCESS_ENDED]).await.ok()
    };
    if !matches!(tokio::time::timeout(Duration::from_secs(1), sent).await, Ok(Some(_))) {
        tracing::debug!("Could not notify other processes of the shutdown; their next heartbeat reports it");
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
    fn too_many_ready_workspaces_become_a_sweep_and_workspaces_without_room_never_do() {
        let ready = |many: usize| (0..many).map(|n| RemoteNotification::Ready(workspace(n)));
        let no_room = |many: usize| (0..many).map(|n| RemoteNotification::NoRoom(workspace(n + 1_000)));
        let count = |notifications: Vec<RemoteNotification>| match payload(&notifications).as_str() {
            "*" => None,
            list => Some(list.split(',').count()),
        };
        assert_eq!(count(ready(MAX_WORKSPACES).collect()), Some(MAX_WORKSPACES));
        assert_eq!(count(ready(MAX_WORKSPACES + 1).collect()), None);
        assert_eq!(count(no_room(MAX_WORKSPACES + 1).collect()), Some(MAX_WORKSPACES));
        assert_eq!(count(ready(5).chain(no_room(MAX_WORKSPACES)).collect()), Some(MAX_WORKSPACES));
        let both = vec![RemoteNotification::Ready(workspace(1)), RemoteNotification::NoRoom(workspace(1))];
        assert_eq!(count(both), Some(1));
    }
}
