//! Answers waits: with a key, with tokens, all at once, or before the wait opens. Also appends the events that
//! executions wait for.
//!
//! Invariants
//! - Every answer has its own choice, recorded with the service's reply. So the output shows whose answer was accepted.
//! - An answer without a reply is repeated until there is one.
//!
//! Not here: what follows from it (`judge`).

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::connect::{Client, Target};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::super::ms;
use super::super::retrying_client::RetryingClient;
use super::documents::{EVENT_TYPE, WAIT};
use super::plan::{Action, Plan};
use crate::receiver::value_of;

/// How often open waits are polled.
const LOOK: Duration = Duration::from_millis(50);
const STREAM_TYPE: &str = "long";

/// The reply to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerOutcome {
    Accepted,
    Refused,
    /// No reply yet, or refused after a repeat: an earlier request may have been accepted.
    Unclear,
}

/// One answer to one wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GivenAnswer {
    pub(super) n: i64,
    pub(super) choice: i64,
    pub(super) outcome: AnswerOutcome,
}

#[derive(Debug)]
pub(super) struct Approver {
    pub(super) plans: BTreeMap<i64, Plan>,
    /// Workspaces, by place.
    pub(super) workspaces: Vec<Uuid>,
    pub(super) target: Target,
    pub(super) bases: PathBuf,
    pub(super) key: String,
    given: Mutex<Vec<GivenAnswer>>,
}

impl Approver {
    pub(super) fn new(plans: &[Plan], workspaces: Vec<Uuid>, target: Target, bases: PathBuf, key: String) -> Approver {
        let plans = plans.iter().map(|plan| (plan.n, plan.clone())).collect();
        Approver { plans, workspaces, target, bases, key, given: Mutex::default() }
    }

    pub(super) fn given(&self) -> Vec<GivenAnswer> {
        self.given.lock().clone()
    }

    /// Answers every open wait, until stopped.
    pub(super) async fn run(self: Arc<Self>, client: Client, stop: CancellationToken) -> anyhow::Result<()> {
        let open = "SELECT a.execution_id, (e.input ->> 'n')::bigint FROM workflow_execution_wait a
                      JOIN workflow_execution e ON e.id = a.execution_id WHERE a.kind = 'WAIT' AND a.status = 'OPEN'";
        let (mut known, mut tasks) = (BTreeSet::new(), JoinSet::new());
        while !stop.is_cancelled() {
            for row in client.query(open, &[]).await.context("read the open waits")? {
                let (execution, n): (Uuid, i64) = (row.get(0), row.get(1));
                let Some(plan) = self.plans.get(&n).filter(|_| known.insert(n)) else { continue };
                let (approver, action) = (Arc::clone(&self), plan.action);
                tasks.spawn(async move { approver.perform(n, action, execution).await });
            }
            while let Some(done) = tasks.try_join_next() {
                done.context("an answer stopped early")??;
            }
            tokio::select! { () = tokio::time::sleep(LOOK) => {}, () = stop.cancelled() => {} }
        }
        while let Some(done) = tasks.join_next().await {
            done.context("an answer stopped early")??;
        }
        Ok(())
    }

    async fn perform(&self, n: i64, action: Action, execution: Uuid) -> anyhow::Result<()> {
        match action {
            Action::Answer { early: false } => self.answer(n, execution).await,
            Action::Race { tokens, times } => self.race(n, execution, tokens, times).await,
            Action::Append { early: false, open_ms } => self.append(n, open_ms).await,
            Action::Answer { early: true }
            | Action::Append { early: true, .. }
            | Action::Nothing
            | Action::Elsewhere
            | Action::Cancel { .. } => Ok(()),
        }
    }

    /// Answers with a key, whether the wait is open or not.
    pub(super) async fn answer(&self, n: i64, execution: Uuid) -> anyhow::Result<()> {
        let mut sender = RetryingClient::new(&self.bases, Some(&self.key), place_of(n))?;
        let path = format!("api/v1/workflow/executions/{execution}/waits/{WAIT}/answer");
        self.give(&mut sender, &path, n, choice_of(n, 0)).await
    }

    /// Uses several tokens several times each, all at once.
    async fn race(&self, n: i64, execution: Uuid, tokens: usize, times: usize) -> anyhow::Result<()> {
        let mut sender = RetryingClient::new(&self.bases, Some(&self.key), place_of(n))?;
        let path = format!("api/v1/workflow/executions/{execution}/waits/{WAIT}/token");
        let mut paths = Vec::new();
        for _ in 0..tokens {
            let made = sender.post(&path, &json!({})).await?;
            let Some(token) = made.body["token"].as_str() else {
                bail!("a token was answered {}: {}", made.status, made.body);
            };
            paths.extend(std::iter::repeat_n(format!("answers/{token}"), times));
        }
        let answers = paths.iter().enumerate().map(|(at, path)| async move {
            let mut sender = RetryingClient::new(&self.bases, None, place_of(n) + at)?;
            self.give(&mut sender, path, n, choice_of(n, at)).await
        });
        futures_util::future::try_join_all(answers).await.map(drop)
    }

    async fn give(&self, sender: &mut RetryingClient, path: &str, n: i64, choice: i64) -> anyhow::Result<()> {
        // Before it is sent: an audit meanwhile may read an end that it led to before its reply is here.
        let at = {
            let mut given = self.given.lock();
            given.push(GivenAnswer { n, choice, outcome: AnswerOutcome::Unclear });
            given.len() - 1
        };
        let answer = sender.post(path, &json!({ "data": { "choice": choice } })).await?;
        let outcome = match answer.status {
            status if status.is_success() => AnswerOutcome::Accepted,
            StatusCode::CONFLICT | StatusCode::NOT_FOUND if answer.again => AnswerOutcome::Unclear,
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => AnswerOutcome::Refused,
            status => bail!("an answer was answered {status}: {}", answer.body),
        };
        self.given.lock()[at].outcome = outcome;
        Ok(())
    }

    /// Appends the event that is waited for, after another one of its type.
    pub(super) async fn append(&self, n: i64, open_ms: Option<u64>) -> anyhow::Result<()> {
        let plan = self.plans.get(&n).context("an event has its plan")?;
        let workspace = self.workspaces[plan.tenant];
        let data = [json!({ "n": -n, "mark": 0 }), json!({ "n": n, "mark": value_of(n, 5) })];
        match open_ms {
            Some(open_ms) => self.append_in(workspace, &data, ms(open_ms)).await,
            None => self.append_by_api(n, workspace, data.into()).await,
        }
    }

    /// Appends in a transaction that stays open for this long.
    async fn append_in(&self, workspace: Uuid, data: &[Value], open: Duration) -> anyhow::Result<()> {
        let client = self.target.connect().await?;
        let insert =
            "INSERT INTO domain_events (id, workspace_id, stream_id, stream_type, stream_version, event_type, \
            event_data)
                      VALUES (gen_random_uuid(), $1, gen_random_uuid(), $2, 1, $3, $4)";
        client.batch_execute("BEGIN").await.context("begin to append")?;
        for data in data {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] = [&workspace, &STREAM_TYPE, &EVENT_TYPE, data];
            client.execute(insert, &values).await.context("append an event")?;
        }
        tokio::time::sleep(open).await;
        client.batch_execute("COMMIT").await.context("commit an event")
    }

    async fn append_by_api(&self, n: i64, workspace: Uuid, data: Vec<Value>) -> anyhow::Result<()> {
        let event = |data: Value| {
            let id = store::new_id();
            json!({ "id": id, "type": EVENT_TYPE, "streamId": id, "streamType": STREAM_TYPE, "data": data })
        };
        let events: Vec<Value> = data.into_iter().map(event).collect();
        let mut sender = RetryingClient::new(&self.bases, Some(&self.key), place_of(n))?;
        let answer = sender.post("api/v1/events", &json!({ "workspaceId": workspace, "events": events })).await?;
        if !answer.status.is_success() {
            bail!("events were answered {}: {}", answer.status, answer.body);
        }
        Ok(())
    }
}

/// The process to use first.
fn place_of(n: i64) -> usize {
    usize::try_from(n).unwrap_or_default()
}

/// The choice of the answer with this index. No two are the same.
fn choice_of(n: i64, at: usize) -> i64 {
    n * 100 + 1 + i64::try_from(at).unwrap_or_default()
}
