//! Repeats a request until the service answers, at any live process. Programs outside the fleet read the addresses from
//! a file.
//!
//! Invariants
//! - A request without an answer is repeated at the next process. `Answer::again` is then true.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use reqwest::StatusCode;
use serde_json::Value;

use crate::service::Fleet;

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// A client. Each clone has its own state.
#[derive(Clone, Debug)]
pub(super) struct RetryingClient {
    client: reqwest::Client,
    /// None if the client sends no key.
    key: Option<String>,
    bases: PathBuf,
    /// The address to use next.
    turn: usize,
    base: Option<String>,
}

/// The result of a request.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Null if the answer had no JSON body.
    pub(super) body: Value,
    /// True if an earlier, unanswered request may have been processed.
    pub(super) again: bool,
}

impl RetryingClient {
    pub(super) fn new(bases: &Path, key: Option<&str>, turn: usize) -> anyhow::Result<RetryingClient> {
        let client = reqwest::Client::builder().timeout(PATIENCE).build().context("build an HTTP client")?;
        Ok(RetryingClient { client, key: key.map(str::to_owned), bases: bases.to_owned(), turn, base: None })
    }

    /// POSTs to a path until the service answers without a server error.
    pub(super) async fn post(&mut self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let mut again = false;
        loop {
            match self.try_ask(path, body).await? {
                Some((StatusCode::TOO_MANY_REQUESTS, _)) => {}
                Some((status, body)) if !status.is_server_error() => return Ok(Answer { status, body, again }),
                _ => again = true,
            }
            self.base = None;
            self.turn += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_ask(&mut self, path: &str, body: &Value) -> anyhow::Result<Option<(StatusCode, Value)>> {
        let base = match &self.base {
            Some(base) => base.clone(),
            None => {
                let text = std::fs::read(&self.bases).context("read the file with the addresses of the service")?;
                let bases: Vec<String> = serde_json::from_slice(&text)?;
                let Some(base) = bases.get(self.turn % bases.len().max(1)) else { return Ok(None) };
                self.base.insert(base.clone()).clone()
            }
        };
        let mut request = self.client.post(format!("{base}/{path}")).json(body);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let Ok(response) = request.send().await else { return Ok(None) };
        let status = response.status();
        let Ok(bytes) = response.bytes().await else { return Ok(None) };
        Ok(Some((status, serde_json::from_slice(&bytes).unwrap_or_default())))
    }
}

/// Writes the addresses of the service to the file.
pub(super) fn tell_bases(fleet: &Fleet, file: &Path) -> anyhow::Result<()> {
    let bases: Vec<String> = (0..fleet.len()).filter_map(|place| fleet.base(place)).collect();
    let new = file.with_extension(store::new_id().simple().to_string());
    std::fs::write(&new, serde_json::to_vec(&bases)?)
        .and_then(|()| std::fs::rename(&new, file))
        .context("write the file with the addresses of the service")
}
