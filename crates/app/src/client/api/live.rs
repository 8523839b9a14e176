//! Event streams: an event means that something changed, and the command then polls.
//!
//! Invariants
//! - A stream only decides when to poll. While it cannot be opened, the command polls at its interval, so it sees
//!   changes later. The stream is opened again after a pause.
//! - A stream that sends nothing for `MAX_SILENCE` counts as broken, because the server sends heartbeats more often.
//!
//! Not here: what is polled (the commands).

use std::time::Duration;

use reqwest::Response;
use tokio::time::Instant;

use super::{Api, Error, refusal};

/// A little more than twice the server's heartbeat.
const MAX_SILENCE: Duration = Duration::from_secs(40);
/// How long a stream is used before it is reopened.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// The pause before a broken stream is opened again.
const REOPEN_PAUSE: Duration = Duration::from_secs(5);

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Something changed.
    Changed,
    /// No event came in time.
    TimedOut,
}

/// An event stream that is reopened when it breaks.
#[derive(Debug)]
pub(crate) struct EventStream {
    path: String,
    open: Option<Open>,
    try_at: Instant,
}

#[derive(Debug)]
struct Open {
    response: Response,
    /// The part of a line that has arrived so far.
    rest: Vec<u8>,
}

impl EventStream {
    /// A stream with this path below `/api/v1/`. It is closed until `open` is called.
    pub(crate) fn new(path: String) -> EventStream {
        EventStream { path, open: None, try_at: Instant::now() }
    }

    /// Whether the stream is open. While it is open, nothing changes without an event.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Opens the stream if it is closed and the pause is over. Poll after this call, because a change before the stream
    /// was open sends no event.
    pub(crate) async fn open(&mut self, api: &Api) {
        if self.open.is_none() && Instant::now() >= self.try_at {
            self.open = api.stream(&self.path).await.ok().map(|response| Open { response, rest: Vec::new() });
            self.try_at = Instant::now() + REOPEN_PAUSE;
        }
    }

    /// Waits for a change, for at most the time `most`. No event is lost if the future is dropped.
    pub(crate) async fn wait(&mut self, most: Duration) -> Wake {
        let over = Instant::now() + most;
        while let Some(open) = &mut self.open {
            tokio::select! {
                () = tokio::time::sleep_until(over) => return Wake::TimedOut,
                changed = open.next_chunk() => match changed {
                    Some(true) => return Wake::Changed,
                    Some(false) => {}
                    // The stream ended. Something may have changed meanwhile: poll immediately.
                    None => {
                        self.open = None;
                        return Wake::Changed;
                    }
                },
            }
        }
        tokio::time::sleep_until(over).await;
        Wake::TimedOut
    }
}

impl Open {
    /// Reads the next chunk. Returns whether it has an event about a change. None: the stream ended.
    async fn next_chunk(&mut self) -> Option<bool> {
        let chunk = tokio::time::timeout(MAX_SILENCE, self.response.chunk()).await.ok()?.ok()??;
        self.rest.extend_from_slice(&chunk);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        Some(has_change(&lines))
    }
}

/// Whether a line names an event about a change.
fn has_change(lines: &[u8]) -> bool {
    let names_a_change = |line: &[u8]| {
        let name = line.strip_prefix(b"event:").map(<[u8]>::trim_ascii);
        name.is_some_and(|name| name != b"ready")
    };
    lines.split(|byte| *byte == b'\n').any(names_a_change)
}

impl Api {
    async fn stream(&self, path: &str) -> Result<Response, Error> {
        let request = self.http.get(format!("{}/api/v1/{path}", self.server)).timeout(LONGEST);
        let opened = tokio::time::timeout(super::TIMEOUT, request.send()).await;
        let response =
            opened.map_err(|_| self.unexpected("no answer in time"))?.map_err(|error| self.failed(&error))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(refusal(status, "", self.has_key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::has_change;

    #[test]
    fn only_events_other_than_ready_are_changes() {
        for (lines, is_change) in [
            ("event: ready\nid: 1:0\ndata: {}\n\n", false),
            (":\nid: 1:0\n\n", false),
            ("event: execution\ndata: {}\n\n", true),
            ("event: nodes\n", true),
            ("data: event: no\n", false),
            ("event: reset\n", true),
            ("", false),
        ] {
            assert_eq!(has_change(lines.as_bytes()), is_change, "{lines:?}");
        }
    }
}
