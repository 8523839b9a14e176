//! Asks the service until it answers, whichever of its processes lives: what is not one of them knows where they listen
//! from a file.
//!
//! Invariants
//! - What was not answered is asked again, of the next process; the answer says whether that happened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use reqwest::StatusCode;
use serde_json::Value;

use crate::service::Fleet;

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// One who asks. Its clones ask each on its own.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    client: reqwest::Client,
    /// None: it shows no key.
    key: Option<String>,
    bases: PathBuf,
    /// Which of the addresses is asked.
    turn: usize,
    base: Option<String>,
}

/// What came of asking.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Null if it had none.
    pub(super) body: Value,
    /// It was asked before without an answer: that may have been heard.
    pub(super) again: bool,
}

impl Asker {
    pub(super) fn new(bases: &Path, key: Option<&str>, turn: usize) -> anyhow::Result<Asker> {
        let client = reqwest::Client::builder().timeout(PATIENCE).build().context("build an HTTP client")?;
        Ok(Asker { client, key: key.map(str::to_owned), bases: bases.to_owned(), turn, base: None })
    }

    /// POSTs to a path until there is an answer that is none of trouble.
    pub(super) async fn ask(&mut self, path: &str, body: &Value) -> anyhow::Result<Answer> {
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
                let text = std::fs::read(&self.bases).context("read where the service listens")?;
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

/// Writes down where the service listens.
pub(super) fn tell_bases(fleet: &Fleet, file: &Path) -> anyhow::Result<()> {
    let bases: Vec<String> = (0..fleet.len()).filter_map(|place| fleet.base(place)).collect();
    let new = file.with_extension(store::new_id().simple().to_string());
    std::fs::write(&new, serde_json::to_vec(&bases)?)
        .and_then(|()| std::fs::rename(&new, file))
        .context("write the bases")
}
