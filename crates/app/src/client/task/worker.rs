//! A worker: claims a task, sends heartbeats while the task is performed, and reports its result.
//!
//!     claim ──▶ work, with a heartbeat every third of the lease ──▶ complete or fail ──▶ claim
//!                 └──lease_lost: the work is stopped, nothing is reported──▶ claim
//!
//! Invariants
//! - A result is reported only under the claim of the task. A worker that lost its lease stops the work, because
//!   another worker has the task.
//! - A result is sent again until the server answers; the server recognizes a repeated result. If the server refuses an
//!   output as invalid, the worker fails the task with the server's reason.
//! - Only a refused key ends a worker. After any other error the worker continues with the next task.
//! - After a request to stop, a worker claims no more tasks and finishes the current one.
//!
//! Not here: how a task is performed (the caller passes a function).

use std::time::Duration;

use kernel::ids::WorkspaceId;
use serde_json::Value;
use server::wire;

use crate::client::api::{Answer, Api, Error, UNEXPECTED_ANSWER};
use crate::exit::Exit;

/// How long one claim request waits for a task. It is shorter than the timeout of a request.
const WAIT_SECONDS: u32 = 20;
const LOST: &str = "lease_lost";
/// The pause between two tries while the server cannot be reached.
const PAUSE: Duration = Duration::from_secs(1);
/// After this many tries the worker drops a result, because the lease has expired meanwhile.
const TRIES: u32 = 60;
const LONGEST_MESSAGE: usize = 4_000;

/// The result of a task.
pub(super) enum TaskResult {
    Completed(Value),
    Failed { message: String, retryable: bool },
}

pub(super) struct Worker<'a> {
    pub(super) api: &'a Api,
    pub(super) queues: Vec<String>,
    pub(super) name: String,
    /// The lease of each claim. None: the lease that the node of the task declares.
    pub(super) lease: Option<Duration>,
    /// The workspace whose tasks are claimed. None: that of the key, or with a root key all workspaces.
    pub(super) workspace: Option<WorkspaceId>,
    /// Exit when the queues are empty.
    pub(super) drain: bool,
}

impl Worker<'_> {
    /// Performs one task after another until it is asked to stop.
    pub(super) async fn serve(
        &self,
        stop: impl Future<Output = ()>,
        say: impl Fn(String),
        work: impl AsyncFn(&wire::ClaimedTask) -> TaskResult,
    ) -> Result<(), Error> {
        tokio::pin!(stop);
        loop {
            let task = tokio::select! {
                claimed = self.claim() => match claimed {
                    Ok(Some(task)) => task,
                    Ok(None) if self.drain => return Ok(()),
                    Ok(None) => continue,
                    Err(error) if is_temporary(&error) => {
                        say(format!("{error}; retrying until the server answers"));
                        tokio::select! { () = tokio::time::sleep(PAUSE) => continue, () = &mut stop => return Ok(()) }
                    }
                    Err(error) => return Err(error),
                },
                () = &mut stop => return Ok(()),
            };
            let asked = self.one(&task, &say, &work, &mut stop).await?;
            if asked {
                return Ok(());
            }
        }
    }

    async fn claim(&self) -> Result<Option<wire::ClaimedTask>, Error> {
        let body = wire::ClaimTasks {
            queues: self.queues.clone(),
            worker_id: self.name.clone(),
            limit: None,
            wait_seconds: (!self.drain).then_some(WAIT_SECONDS),
            lease_seconds: self.lease.map(seconds),
            workspace_id: self.workspace,
        };
        let claimed: Answer<wire::ClaimedTasks> = self.api.post("tasks/claim", &body).await?;
        Ok(claimed.value.items.into_iter().next())
    }

    /// Performs one task. Returns whether a stop was requested meanwhile.
    async fn one(
        &self,
        task: &wire::ClaimedTask,
        say: &impl Fn(String),
        work: &impl AsyncFn(&wire::ClaimedTask) -> TaskResult,
        stop: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<bool, Error> {
        let name = format!("{} {} of {}", task.queue, task.node, task.execution_id);
        let (doing, keeping) = (work(task), self.send_heartbeats(task));
        tokio::pin!(doing, keeping);
        let mut asked = false;
        let done = loop {
            tokio::select! {
                done = &mut doing => break done,
                () = &mut keeping => {
                    say(format!("{name}: the lease expired; another worker may have the task"));
                    return Ok(asked);
                }
                () = &mut *stop, if !asked => asked = true,
            }
        };
        match self.report(task, done, |text| say(format!("{name}: {text}"))).await {
            Err(error) if error.code() == LOST => {
                say(format!("{name}: the lease expired; another worker may have the task"))
            }
            Err(error) if error.exit() == Exit::Unauthorised => return Err(error),
            Err(error) => say(format!("{name}: its result could not be reported: {error}")),
            Ok(()) => {}
        }
        Ok(asked)
    }

    /// Reports the result of a task. If the server refuses the output, the task fails.
    async fn report(&self, task: &wire::ClaimedTask, done: TaskResult, say: impl Fn(&str)) -> Result<(), Error> {
        let (message, retryable) = match done {
            TaskResult::Failed { message, retryable } => (message, retryable),
            TaskResult::Completed(output) => {
                let body = wire::CompleteTask { claim_id: task.claim_id, output: Some(output) };
                match self.end(&format!("tasks/{}/complete", task.id), &body).await {
                    Err(error) if is_refused(&error) => (format!("the server refused the output: {error}"), false),
                    reported => return reported,
                }
            }
        };
        say(&message);
        let body =
            wire::FailTask { claim_id: task.claim_id, message: failure_message(&message), retryable: Some(retryable) };
        self.end(&format!("tasks/{}/fail", task.id), &body).await
    }

    /// Sends heartbeats until the lease is lost.
    async fn send_heartbeats(&self, task: &wire::ClaimedTask) {
        let pause = Duration::try_from_secs_f64(task.lease_seconds / 3.0).unwrap_or(PAUSE);
        let (path, body) =
            (format!("tasks/{}/heartbeat", task.id), wire::HeartbeatTask { claim_id: task.claim_id, progress: None });
        loop {
            tokio::time::sleep(pause).await;
            let kept: Result<Answer<wire::TaskLease>, Error> = self.api.post(&path, &body).await;
            if kept.is_err_and(|error| error.code() == LOST) {
                return;
            }
        }
    }

    async fn end(&self, path: &str, body: &impl serde::Serialize) -> Result<(), Error> {
        for _ in 1..TRIES {
            match self.api.post::<wire::Task>(path, body).await {
                Err(error) if is_temporary(&error) => tokio::time::sleep(PAUSE).await,
                reported => return reported.map(drop),
            }
        }
        self.api.post::<wire::Task>(path, body).await.map(drop)
    }
}

/// A lease in whole seconds, rounded up.
fn seconds(lease: Duration) -> u32 {
    u32::try_from(lease.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// Whether the same request may succeed later: the server had an internal error, or something between this program and
/// the server answered instead, such as a proxy.
fn is_temporary(error: &Error) -> bool {
    error.is_transient() || error.status().is_some_and(|status| status >= 500) || error.code() == UNEXPECTED_ANSWER
}

/// Whether the server refused the content of the request as invalid. A lost claim and a refused key do not count.
fn is_refused(error: &Error) -> bool {
    error.exit() != Exit::Unauthorised
        && error.status().is_some_and(|status| status < 500 && status != 409)
        && !is_temporary(error)
}

/// The message of a failure as the server accepts it: not blank, not too long, without NUL.
fn failure_message(message: &str) -> String {
    let cut: String = message.trim().chars().take(LONGEST_MESSAGE).map(|c| if c == '\0' { ' ' } else { c }).collect();
    if cut.trim().is_empty() { "the command failed without a message".to_owned() } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_message_is_one_that_the_server_accepts() {
        assert_eq!(failure_message(" no paper\n"), "no paper");
        assert_eq!(failure_message("a\0b"), "a b");
        assert_eq!(failure_message(" \0 "), "the command failed without a message");
        assert_eq!(failure_message(&"ä".repeat(9_000)).chars().count(), LONGEST_MESSAGE);
    }
}
