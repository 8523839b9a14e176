//! Event streams as a client follows them: told that something changed, it looks.
//!
//! Invariants
//! - A stream only says when to look. One that cannot be opened, or breaks, costs promptness and nothing else: whoever
//!   waits is told the time as before, and the stream is tried again.
//! - A stream that says nothing for longer than its heartbeat is taken for broken.
//!
//! Not here: what is looked at (the commands).

use std::time::Duration;

use reqwest::Response;
use tokio::time::Instant;

use super::{Api, Error, refusal};

/// Twice the server's heartbeat, and some.
const SILENCE: Duration = Duration::from_secs(40);
/// How long a stream may last before it is opened anew.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How soon a stream that broke is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// What happened while somebody waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Something changed.
    Told,
    /// Nothing did, as far as is known.
    Nothing,
}

/// A stream that is followed as well as can be.
#[derive(Debug)]
pub(crate) struct Live {
    path: String,
    open: Option<Open>,
    try_at: Instant,
}

#[derive(Debug)]
struct Open {
    response: Response,
    /// What came of a line that is not whole yet.
    rest: Vec<u8>,
}

impl Live {
    /// A stream below `/api/v1/`. It is opened when it is first waited for.
    pub(crate) fn new(path: String) -> Live {
        Live { path, open: None, try_at: Instant::now() }
    }

    /// Is it followed now? Then only what it tells is news.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Opens the stream if it is time to. Look once after this: what changed before is not told.
    pub(crate) async fn open(&mut self, api: &Api) {
        if self.open.is_none() && Instant::now() >= self.try_at {
            self.open = api.stream(&self.path).await.ok().map(|response| Open { response, rest: Vec::new() });
            self.try_at = Instant::now() + AGAIN;
        }
    }

    /// Waits until something changes, at most so long. Nothing that is told is lost if this is not waited for to its
    /// end.
    pub(crate) async fn wait(&mut self, most: Duration) -> Waited {
        let over = Instant::now() + most;
        while let Some(open) = &mut self.open {
            tokio::select! {
                () = tokio::time::sleep_until(over) => return Waited::Nothing,
                told = open.told() => match told {
                    Some(true) => return Waited::Told,
                    Some(false) => {}
                    // Something may have changed since: look at once, and then as if there were no stream.
                    None => {
                        self.open = None;
                        return Waited::Told;
                    }
                },
            }
        }
        tokio::time::sleep_until(over).await;
        Waited::Nothing
    }
}

impl Open {
    /// Did what came next tell of a change? None: the stream is over.
    async fn told(&mut self) -> Option<bool> {
        let chunk = tokio::time::timeout(SILENCE, self.response.chunk()).await.ok()?.ok()??;
        self.rest.extend_from_slice(&chunk);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        Some(tells(&lines))
    }
}

/// Are there lines that name an event which is news?
fn tells(lines: &[u8]) -> bool {
    let news = |line: &[u8]| {
        let name = line.strip_prefix(b"event:").map(<[u8]>::trim_ascii);
        name.is_some_and(|name| name != b"ready")
    };
    lines.split(|byte| *byte == b'\n').any(news)
}

impl Api {
    async fn stream(&self, path: &str) -> Result<Response, Error> {
        let request = self.http.get(format!("{}/api/v1/{path}", self.server)).timeout(LONGEST);
        let opened = tokio::time::timeout(super::TIMEOUT, request.send()).await;
        let response = opened.map_err(|_| self.strange("no answer in time"))?.map_err(|error| self.failed(&error))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(refusal(status, "", self.has_key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::tells;

    #[test]
    fn only_events_are_news() {
        for (lines, news) in [
            ("event: ready\nid: 1:0\ndata: {}\n\n", false),
            (":\nid: 1:0\n\n", false),
            ("event: execution\ndata: {}\n\n", true),
            ("event: nodes\n", true),
            ("data: event: no\n", false),
            ("event: reset\n", true),
            ("", false),
        ] {
            assert_eq!(tells(lines.as_bytes()), news, "{lines:?}");
        }
    }
}
