//! Watches an execution: shows why it waits, each change of a node, and how it ended.
//!
//!     poll ──▶ show what changed ──▶ wait for an event of the execution's stream ──▶ poll
//!       ▲                              └ no stream: pause 250 ms, backing off to 1 s while nothing changes
//!       └── temporary errors are retried, for a minute
//!
//! Invariants
//! - A stream only decides when to poll. Even with a stream the execution is polled from time to time.
//! - Without a stream, the request for the execution waits on the server for the length of the pause. It returns early
//!   if the execution ends, so the end is shown immediately.
//! - Watching changes nothing: the execution continues when watching stops.
//! - A failure is shown once: with its node, or, if it belongs to no node, in the last line.
//!
//! Not here: drawing (`watch::view`).

mod view;

use std::time::Duration;

use kernel::duration;
use kernel::execution::Status;
use kernel::ids::ExecutionId;
use server::wire;
use tokio::time::Instant;

use super::Format;
use super::api::{Answer, Error, EventStream, Wake};
use super::connection::Session;
use super::execution::path;
use crate::exit::Exit;
use crate::output::{self, tone_of_status};
use view::View;

pub(super) use view::{is_active, node_detail, node_name};

/// The pause after a change, and the longest pause while nothing changes.
const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// With a stream: the shortest time between two polls, and the longest while the execution waits or runs.
const MIN_STREAM_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE_WAITING: Duration = Duration::from_secs(2);
const MAX_PAUSE_RUNNING: Duration = Duration::from_secs(10);
/// How long the server may be unreachable before watching stops.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why watching ended.
enum WatchEnd {
    Ended(Box<Answer<wire::Execution>>),
    TimedOut(Duration),
    Interrupted,
}

/// Watches an execution until it ends, the timeout passes, or the user interrupts.
pub(super) async fn follow(session: &Session, id: ExecutionId, timeout: Option<Duration>) -> anyhow::Result<Exit> {
    let mut view = View::new(session.stderr, id);
    let end = tokio::select! {
        ended = poll(session, id, &mut view) => ended.map(|ended| WatchEnd::Ended(Box::new(ended))),
        timeout = expire(timeout) => Ok(WatchEnd::TimedOut(timeout)),
        interrupted = tokio::signal::ctrl_c() =>
            interrupted.map(|()| WatchEnd::Interrupted).map_err(anyhow::Error::from),
    };
    view.close()?;
    let text = id.to_string();
    let how = |why: String| {
        output::print_note(format!("{why}; the execution continues"))?;
        session.note(format!("watch it: {}", session.hint(&["watch", &text])))?;
        session.note(format!("cancel it: {}", session.hint(&["cancel", &text])))
    };
    match end? {
        WatchEnd::Ended(execution) => {
            conclude(session, &execution, &view)?;
            if matches!(execution.value.status, Status::Failed | Status::TimedOut) {
                session.note(format!("why: {}", session.hint(&["logs", &text])))?;
                session.note(format!("rerun: {}", session.hint(&["rerun", &text, "--from", "failed"])))?;
            }
            Ok(Exit::of(execution.value.status))
        }
        WatchEnd::TimedOut(timeout) => {
            how(format!("{id} did not end within {}", duration::format(timeout)))?;
            Ok(Exit::TimedOut)
        }
        WatchEnd::Interrupted => {
            how(format!("stopped watching {id}"))?;
            Ok(Exit::Interrupted)
        }
    }
}

async fn expire(timeout: Option<Duration>) -> Duration {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
    timeout.unwrap_or_default()
}

async fn poll(session: &Session, id: ExecutionId, view: &mut View) -> anyhow::Result<Answer<wire::Execution>> {
    let (mut pace, mut live) = (Pace::new(), EventStream::new(format!("{}/events", path(id))));
    loop {
        live.open(&session.api).await;
        let begun = Instant::now();
        let wait = pace.wait().filter(|_| !live.is_open());
        let mut behind = MAX_PAUSE_RUNNING;
        match poll_once(session, id, wait, view).await {
            Ok((execution, _)) if execution.value.status.is_terminal() => return Ok(execution),
            Ok((execution, changed)) => {
                pace.polled(changed, begun.elapsed());
                if execution.value.status == Status::Pending {
                    behind = MAX_PAUSE_WAITING;
                }
            }
            Err(PollError::Api(error)) if error.is_transient() && pace.failed(begun) => view.unreachable(&error)?,
            Err(PollError::Api(error)) => return Err(error.into()),
            Err(PollError::Output(error)) => return Err(error),
        }
        if live.is_open() && pace.unreachable_since.is_none() {
            if live.wait(behind).await == Wake::Changed {
                tokio::time::sleep_until(begun + MIN_STREAM_PAUSE).await;
            }
        } else {
            tokio::time::sleep_until(begun + pace.pause).await;
        }
    }
}

enum PollError {
    Api(Error),
    Output(anyhow::Error),
}

impl From<Error> for PollError {
    fn from(error: Error) -> PollError {
        PollError::Api(error)
    }
}

impl From<anyhow::Error> for PollError {
    fn from(error: anyhow::Error) -> PollError {
        PollError::Output(error)
    }
}

/// Polls once, shows what changed, and returns whether anything changed.
async fn poll_once(
    session: &Session,
    id: ExecutionId,
    wait: Option<Duration>,
    view: &mut View,
) -> Result<(Answer<wire::Execution>, bool), PollError> {
    let wait = wait.map(duration::format);
    let query: Vec<(&str, &str)> = wait.as_deref().map(|wait| ("wait", wait)).into_iter().collect();
    let execution: Answer<wire::Execution> = session.api.get(&path(id), &query).await?;
    if execution.value.status == Status::Pending {
        let item: Answer<wire::QueueItem> =
            session.api.get(&format!("workflow/queue/{}", id.queue_item()), &[]).await?;
        // The execution may have started between the two requests. In that case its nodes are shown instead.
        if item.value.execution_status == Status::Pending {
            return Ok((execution, view.queued(&item.value)?));
        }
    }
    let changed = view.nodes(&nodes(session, id, view).await?)?;
    Ok((execution, changed))
}

/// Reads the nodes of an execution. Reads their outputs only if a new message of a `LOG` node must be shown.
async fn nodes(session: &Session, id: ExecutionId, view: &View) -> Result<Vec<wire::ExecutionNode>, Error> {
    let path = format!("{}/nodes", path(id));
    let bare: Answer<wire::ExecutionNodes> = session.api.get(&path, &[("payloads", "false")]).await?;
    if !view.wants_messages(&bare.value.items) {
        return Ok(bare.value.items);
    }
    let (mut items, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let query: Vec<(&str, &str)> = cursor.iter().map(|cursor| ("cursor", cursor.as_str())).collect();
        let page: Answer<wire::ExecutionNodes> = session.api.get(&path, &query).await?;
        items.extend(page.value.items);
        cursor = page.value.next_cursor;
        if cursor.is_none() {
            return Ok(items);
        }
    }
}

/// How often to poll.
#[derive(Debug)]
struct Pace {
    pause: Duration,
    has_polled: bool,
    /// The time since which the server has not answered. None: it answered the last request.
    unreachable_since: Option<Instant>,
}

impl Pace {
    fn new() -> Pace {
        Pace { pause: MIN_PAUSE, has_polled: false, unreachable_since: None }
    }

    /// How long the server may hold the request while the execution runs. None: answer immediately, as in the first
    /// poll.
    fn wait(&self) -> Option<Duration> {
        (self.has_polled && self.unreachable_since.is_none()).then_some(self.pause)
    }

    /// Shortens the pause to its minimum after a change, and lengthens it otherwise. Slow answers lengthen it too.
    fn polled(&mut self, changed: bool, took: Duration) {
        let waited = self.wait().unwrap_or_default();
        let pause = if changed { MIN_PAUSE } else { (self.pause * 3 / 2).min(MAX_PAUSE) };
        self.pause = pause.max(took.saturating_sub(waited) * 2);
        self.has_polled = true;
        self.unreachable_since = None;
    }

    /// Records a failed poll. Returns whether to try again: false once the server was unreachable for `PATIENCE`.
    fn failed(&mut self, now: Instant) -> bool {
        let since = *self.unreachable_since.get_or_insert(now);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        now.duration_since(since) < PATIENCE
    }
}

/// Shows how an execution ended, and its output as data.
fn conclude(session: &Session, answer: &Answer<wire::Execution>, view: &View) -> anyhow::Result<()> {
    let execution = &answer.value;
    let status = session.stderr.paint(tone_of_status(execution.status.name()), execution.status.name());
    let took = execution.duration_ms.map(|ms| format!(" in {}", output::format_duration(ms))).unwrap_or_default();
    let why = execution.error.as_ref().map(|error| format!(": {}", view.describe_failure(error))).unwrap_or_default();
    output::print_note(view.tagged(&format!("{status}{took}{why}")))?;
    match (session.format, execution.output.as_ref().filter(|output| !output.is_null())) {
        (Format::Json, _) => output::print_json(&answer.body, session.stdout),
        (Format::Table, Some(value)) => output::print_value(value),
        (Format::Table, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(5);

    #[test]
    fn polls_become_rarer_while_nothing_changes() {
        let mut pace = Pace::new();
        assert_eq!(pace.wait(), None);
        let mut seen = Vec::new();
        for changed in [true, false, false, false, false, false, true] {
            pace.polled(changed, pace.wait().unwrap_or_default() + QUICK);
            seen.push(pace.pause.as_millis());
        }
        assert_eq!(seen, [250, 375, 562, 843, 1_000, 1_000, 250]);
        assert_eq!(pace.wait(), Some(MIN_PAUSE));
    }

    #[test]
    fn slow_answers_make_polls_rarer() {
        let mut pace = Pace::new();
        pace.polled(true, Duration::from_secs(2));
        assert_eq!(pace.pause, Duration::from_secs(4));
        pace.polled(true, Duration::from_secs(4) + QUICK);
        assert_eq!(pace.pause, MIN_PAUSE);
    }

    #[test]
    fn an_unreachable_server_is_retried_for_a_limited_time() {
        let mut pace = Pace::new();
        let now = Instant::now();
        assert!(pace.failed(now));
        assert!(pace.failed(now + Duration::from_secs(59)));
        assert_eq!(pace.wait(), None);
        assert!(!pace.failed(now + PATIENCE));
        pace.polled(false, QUICK);
        assert!(pace.failed(now + PATIENCE));
    }
}
