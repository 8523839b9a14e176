//! Following an execution: why it waits, each node as it changes, how it ended.
//!
//!     look ──▶ show what changed ──▶ wait until the execution's stream tells of more ──▶ look
//!       ▲                              └ it cannot be followed: look again soon, and then ever later, up to a second
//!       └── trouble that passes is waited out, for a while
//!
//! Invariants
//! - A stream only says when to look, and one that is followed is not believed for ever: there is a look behind it.
//! - Without a stream, the pause between looks is the server's own wait for the end, so the end is seen at once.
//! - Watching changes nothing: to stop it leaves the execution alone.
//! - A failure is told once: with its node, or at the end if no node had it.
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
use super::api::{Answer, Error, Live, Waited};
use super::connection::Session;
use super::execution::path;
use crate::exit::Exit;
use crate::output::{self, tone};
use view::View;

pub(super) use view::{detail, is_moving, name};

/// How soon to look again after something changed, and how late if nothing does.
const SOON: Duration = Duration::from_millis(250);
const LATE: Duration = Duration::from_secs(1);
/// With a stream: the shortest between two looks, and the longest, while it waits and while it runs.
const BREATH: Duration = Duration::from_millis(50);
const WAITING: Duration = Duration::from_secs(2);
const RUNNING: Duration = Duration::from_secs(10);
/// How long a server may be away before we give up.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the watching ended.
enum End {
    Ended(Box<Answer<wire::Execution>>),
    TimedOut(Duration),
    Interrupted,
}

/// Follows an execution to its end, to the timeout, or until the user leaves.
pub(super) async fn follow(session: &Session, id: ExecutionId, timeout: Option<Duration>) -> anyhow::Result<Exit> {
    let mut view = View::new(session.stderr, id);
    let end = tokio::select! {
        ended = poll(session, id, &mut view) => ended.map(|ended| End::Ended(Box::new(ended))),
        timeout = expire(timeout) => Ok(End::TimedOut(timeout)),
        interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| End::Interrupted).map_err(anyhow::Error::from),
    };
    view.close()?;
    let text = id.to_string();
    let how = |why: String| {
        output::note(format!("{why}; it goes on"))?;
        session.tell(format!("watch it: {}", session.hint(&["watch", &text])))?;
        session.tell(format!("stop it: {}", session.hint(&["cancel", &text])))
    };
    match end? {
        End::Ended(execution) => {
            conclude(session, &execution, &view)?;
            Ok(Exit::of(execution.value.status))
        }
        End::TimedOut(timeout) => {
            how(format!("{id} has not ended within {}", duration::format(timeout)))?;
            Ok(Exit::TimedOut)
        }
        End::Interrupted => {
            how(format!("no longer watching {id}"))?;
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
    let (mut pace, mut live) = (Pace::new(), Live::new(format!("{}/events", path(id))));
    loop {
        live.open(&session.api).await;
        let begun = Instant::now();
        let wait = pace.wait().filter(|_| !live.is_open());
        let mut behind = RUNNING;
        match look(session, id, wait, view).await {
            Ok((execution, _)) if execution.value.status.is_terminal() => return Ok(execution),
            Ok((execution, changed)) => {
                pace.looked(changed, begun.elapsed());
                if execution.value.status == Status::Pending {
                    behind = WAITING;
                }
            }
            Err(Trouble::Api(error)) if error.is_passing() && pace.failed(begun) => view.trouble(&error)?,
            Err(Trouble::Api(error)) => return Err(error.into()),
            Err(Trouble::Output(error)) => return Err(error),
        }
        if live.is_open() && pace.silent_since.is_none() {
            if live.wait(behind).await == Waited::Told {
                tokio::time::sleep_until(begun + BREATH).await;
            }
        } else {
            tokio::time::sleep_until(begun + pace.pause).await;
        }
    }
}

enum Trouble {
    Api(Error),
    Output(anyhow::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Api(error)
    }
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Trouble {
        Trouble::Output(error)
    }
}

/// Looks once, shows what is new, and says whether anything was.
async fn look(
    session: &Session,
    id: ExecutionId,
    wait: Option<Duration>,
    view: &mut View,
) -> Result<(Answer<wire::Execution>, bool), Trouble> {
    let wait = wait.map(duration::format);
    let query: Vec<(&str, &str)> = wait.as_deref().map(|wait| ("wait", wait)).into_iter().collect();
    let execution: Answer<wire::Execution> = session.api.get(&path(id), &query).await?;
    if execution.value.status == Status::Pending {
        let item: Answer<wire::QueueItem> =
            session.api.get(&format!("workflow/queue/{}", id.queue_item()), &[]).await?;
        // It may have begun between the two questions: then it is its nodes that are news.
        if item.value.execution_status == Status::Pending {
            return Ok((execution, view.queued(&item.value)?));
        }
    }
    let changed = view.nodes(&nodes(session, id, view).await?)?;
    Ok((execution, changed))
}

/// The nodes; with what they made only if some of it is to be shown.
async fn nodes(session: &Session, id: ExecutionId, view: &View) -> Result<Vec<wire::Node>, Error> {
    let path = format!("{}/nodes", path(id));
    let bare: Answer<wire::Nodes> = session.api.get(&path, &[("payloads", "false")]).await?;
    if !view.wants_messages(&bare.value.items) {
        return Ok(bare.value.items);
    }
    let (mut items, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let query: Vec<(&str, &str)> = cursor.iter().map(|cursor| ("cursor", cursor.as_str())).collect();
        let page: Answer<wire::Nodes> = session.api.get(&path, &query).await?;
        items.extend(page.value.items);
        cursor = page.value.next_cursor;
        if cursor.is_none() {
            return Ok(items);
        }
    }
}

/// How often to look.
#[derive(Debug)]
struct Pace {
    pause: Duration,
    has_looked: bool,
    /// Since when there has been no answer.
    silent_since: Option<Instant>,
}

impl Pace {
    fn new() -> Pace {
        Pace { pause: SOON, has_looked: false, silent_since: None }
    }

    /// How long the server may hold its answer while nothing ends: the first look is at once.
    fn wait(&self) -> Option<Duration> {
        (self.has_looked && self.silent_since.is_none()).then_some(self.pause)
    }

    /// Something changed: look soon. Nothing did: later. Never busier than half the time, however slow the answers.
    fn looked(&mut self, changed: bool, took: Duration) {
        let waited = self.wait().unwrap_or_default();
        let pause = if changed { SOON } else { (self.pause * 3 / 2).min(LATE) };
        self.pause = pause.max(took.saturating_sub(waited) * 2);
        self.has_looked = true;
        self.silent_since = None;
    }

    /// Counts a failure that began now, and says whether to go on.
    fn failed(&mut self, now: Instant) -> bool {
        let since = *self.silent_since.get_or_insert(now);
        self.pause = (self.pause * 2).min(LATE);
        now.duration_since(since) < PATIENCE
    }
}

/// Tells how an execution ended: a line about it, and its output as data.
fn conclude(session: &Session, answer: &Answer<wire::Execution>, view: &View) -> anyhow::Result<()> {
    let execution = &answer.value;
    let status = session.stderr.paint(tone(execution.status.name()), execution.status.name());
    let took = execution.duration_ms.map(|ms| format!(" in {}", output::took(ms))).unwrap_or_default();
    let why = execution.error.as_ref().map(|error| format!(": {}", view.why(error))).unwrap_or_default();
    output::note(view.tagged(&format!("{status}{took}{why}")))?;
    match (session.format, execution.output.as_ref().filter(|output| !output.is_null())) {
        (Format::Json, _) => output::json(&answer.body, session.stdout),
        (Format::Table, Some(value)) => output::value(value),
        (Format::Table, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(5);

    #[test]
    fn the_pace_slows_down_while_nothing_happens() {
        let mut pace = Pace::new();
        assert_eq!(pace.wait(), None);
        let mut seen = Vec::new();
        for changed in [true, false, false, false, false, false, true] {
            pace.looked(changed, pace.wait().unwrap_or_default() + QUICK);
            seen.push(pace.pause.as_millis());
        }
        assert_eq!(seen, [250, 375, 562, 843, 1_000, 1_000, 250]);
        assert_eq!(pace.wait(), Some(SOON));
    }

    #[test]
    fn slow_answers_are_asked_for_less_often() {
        let mut pace = Pace::new();
        pace.looked(true, Duration::from_secs(2));
        assert_eq!(pace.pause, Duration::from_secs(4));
        pace.looked(true, Duration::from_secs(4) + QUICK);
        assert_eq!(pace.pause, SOON);
    }

    #[test]
    fn a_server_that_is_away_is_waited_for_but_not_for_ever() {
        let mut pace = Pace::new();
        let now = Instant::now();
        assert!(pace.failed(now));
        assert!(pace.failed(now + Duration::from_secs(59)));
        assert_eq!(pace.wait(), None);
        assert!(!pace.failed(now + PATIENCE));
        pace.looked(false, QUICK);
        assert!(pace.failed(now + PATIENCE));
    }
}
