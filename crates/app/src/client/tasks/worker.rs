//! A worker: claims a task, keeps it by heartbeats while it is done, and tells how it ended.
//!
//!     claim ──▶ work, a heartbeat every third of the lease ──▶ complete or fail ──▶ claim
//!                 └──lease_lost: the work is broken off, nothing is told──▶ claim
//!
//! Invariants
//! - What was claimed is told of under its claim, or not at all: a worker that lost its lease stops, for another has
//!   the task.
//! - An end is told until it is answered: the server knows one that comes twice. What the server does not take as an
//!   output is a failure that says so.
//! - Only what is said of its own key ends a worker: whatever is wrong with a task, it goes on with the next.
//! - Asked to stop, it claims nothing more and finishes what it has.
//!
//! Not here: what is done for a task (whoever runs a worker says).

use std::time::Duration;

use kernel::ids::WorkspaceId;
use serde_json::Value;
use server::wire;

use crate::client::api::{Answer, Api, Error, STRANGE};
use crate::exit::Exit;

/// How long one claim waits for a task: less than a request may take.
const WAIT: &str = "20s";
const LOST: &str = "lease_lost";
/// Between two tries while the server is away.
const PAUSE: Duration = Duration::from_secs(1);
/// An end that cannot be told for so long is given up: the lease is lost by then.
const TRIES: u32 = 60;
const LONGEST_MESSAGE: usize = 4_000;

/// How a task ended.
pub(super) enum Done {
    Completed(Value),
    Failed { message: String, retryable: bool },
}

pub(super) struct Worker<'a> {
    pub(super) api: &'a Api,
    pub(super) queues: Vec<String>,
    pub(super) name: String,
    /// None: what each task says.
    pub(super) lease: Option<Duration>,
    /// None: that of the key, or of all.
    pub(super) workspace: Option<WorkspaceId>,
    /// End when there is nothing more to do.
    pub(super) drain: bool,
}

impl Worker<'_> {
    /// Does one task after another until it is asked to stop.
    pub(super) async fn serve(
        &self,
        stop: impl Future<Output = ()>,
        say: impl Fn(String),
        work: impl AsyncFn(&wire::ClaimedTask) -> Done,
    ) -> Result<(), Error> {
        tokio::pin!(stop);
        loop {
            let task = tokio::select! {
                claimed = self.claim() => match claimed {
                    Ok(Some(task)) => task,
                    Ok(None) if self.drain => return Ok(()),
                    Ok(None) => continue,
                    Err(error) if passes(&error) => {
                        say(format!("{error}; going on when it answers"));
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
            worker: self.name.clone(),
            max: None,
            wait: (!self.drain).then(|| WAIT.to_owned()),
            lease: self.lease.map(|lease| format!("{}ms", lease.as_millis())),
            workspace_id: self.workspace,
        };
        let claimed: Answer<wire::ClaimedTasks> = self.api.post("tasks/claim", &body).await?;
        Ok(claimed.value.items.into_iter().next())
    }

    /// Does one task; answers whether it was asked to stop meanwhile.
    async fn one(
        &self,
        task: &wire::ClaimedTask,
        say: &impl Fn(String),
        work: &impl AsyncFn(&wire::ClaimedTask) -> Done,
        stop: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<bool, Error> {
        let name = format!("{} {} of {}", task.queue, task.node, task.execution_id);
        let (doing, keeping) = (work(task), self.keep(task));
        tokio::pin!(doing, keeping);
        let mut asked = false;
        let done = loop {
            tokio::select! {
                done = &mut doing => break done,
                () = &mut keeping => {
                    say(format!("{name}: the lease was lost, another worker has it"));
                    return Ok(asked);
                }
                () = &mut *stop, if !asked => asked = true,
            }
        };
        match self.tell(task, done, |text| say(format!("{name}: {text}"))).await {
            Err(error) if error.code() == LOST => say(format!("{name}: the lease was lost, another worker has it")),
            Err(error) if error.exit() == Exit::Unauthorised => return Err(error),
            Err(error) => say(format!("{name}: its end could not be told: {error}")),
            Ok(()) => {}
        }
        Ok(asked)
    }

    /// Tells how a task ended; an output that is refused is a failure.
    async fn tell(&self, task: &wire::ClaimedTask, done: Done, say: impl Fn(&str)) -> Result<(), Error> {
        let (message, retryable) = match done {
            Done::Failed { message, retryable } => (message, retryable),
            Done::Completed(output) => {
                let body = wire::CompleteTask { claim_id: task.claim_id, output: Some(output) };
                match self.end(&format!("tasks/{}/complete", task.id), &body).await {
                    Err(error) if is_refused(&error) => {
                        (format!("the server does not take its output: {error}"), false)
                    }
                    told => return told,
                }
            }
        };
        say(&message);
        let body = wire::FailTask { claim_id: task.claim_id, message: said(&message), retryable: Some(retryable) };
        self.end(&format!("tasks/{}/fail", task.id), &body).await
    }

    /// Keeps a task until its lease is lost.
    async fn keep(&self, task: &wire::ClaimedTask) {
        let pause = Duration::try_from_secs_f64(task.lease_seconds / 3.0).unwrap_or(PAUSE);
        let (path, body) =
            (format!("tasks/{}/heartbeat", task.id), wire::KeepTask { claim_id: task.claim_id, progress: None });
        loop {
            tokio::time::sleep(pause).await;
            let kept: Result<Answer<wire::KeptTask>, Error> = self.api.post(&path, &body).await;
            if kept.is_err_and(|error| error.code() == LOST) {
                return;
            }
        }
    }

    async fn end(&self, path: &str, body: &impl serde::Serialize) -> Result<(), Error> {
        for _ in 1..TRIES {
            match self.api.post::<wire::Task>(path, body).await {
                Err(error) if passes(&error) => tokio::time::sleep(PAUSE).await,
                told => return told.map(drop),
            }
        }
        self.api.post::<wire::Task>(path, body).await.map(drop)
    }
}

/// May the same be answered in a while? What is no word of the server's own, or its own trouble, may.
fn passes(error: &Error) -> bool {
    error.is_passing() || error.status().is_some_and(|status| status >= 500) || error.code() == STRANGE
}

/// Does the server not take what it was told? That the claim is not the task's any more is something else, and so is a
/// bad key.
fn is_refused(error: &Error) -> bool {
    error.exit() != Exit::Unauthorised
        && error.status().is_some_and(|status| status < 500 && status != 409)
        && !passes(error)
}

/// A failure's text as the server takes it: not blank, not too long, and nothing that no text holds.
fn said(message: &str) -> String {
    let cut: String = message.trim().chars().take(LONGEST_MESSAGE).map(|c| if c == '\0' { ' ' } else { c }).collect();
    if cut.trim().is_empty() { "it failed and did not say why".to_owned() } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_said_in_words_that_the_server_takes() {
        assert_eq!(said(" no paper\n"), "no paper");
        assert_eq!(said("a\0b"), "a b");
        assert_eq!(said(" \0 "), "it failed and did not say why");
        assert_eq!(said(&"ä".repeat(9_000)).chars().count(), LONGEST_MESSAGE);
    }
}
