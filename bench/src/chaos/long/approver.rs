//! Those who answer: with a key, with tokens, all at once or before anybody asks; and those who append the events that
//! are waited for.
//!
//! Invariants
//! - Every answer has a choice of its own, noted with what was said of it: whose was accepted can be told from the
//!   outcome.
//! - An answer that was not heard of is given again, until it is.
//!
//! Not here: what is made of it (`judge`).

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

use super::super::asking::Asker;
use super::super::ms;
use super::documents::{EVENT_TYPE, WAIT};
use super::plan::{Doing, Plan};
use crate::receiver::value_of;

/// How often it is looked who asks.
const LOOK: Duration = Duration::from_millis(50);
const STREAM_TYPE: &str = "long";

/// What an answer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Accepted,
    Refused,
    /// Refused when it was given again: the first time may have been heard.
    Unclear,
}

/// One answer to one wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) n: i64,
    pub(super) choice: i64,
    pub(super) told: Told,
}

#[derive(Debug)]
pub(super) struct Approver {
    pub(super) plans: BTreeMap<i64, Plan>,
    /// Workspaces, by place.
    pub(super) workspaces: Vec<Uuid>,
    pub(super) target: Target,
    pub(super) bases: PathBuf,
    pub(super) key: String,
    given: Mutex<Vec<Given>>,
}

impl Approver {
    pub(super) fn new(plans: &[Plan], workspaces: Vec<Uuid>, target: Target, bases: PathBuf, key: String) -> Approver {
        let plans = plans.iter().map(|plan| (plan.n, plan.clone())).collect();
        Approver { plans, workspaces, target, bases, key, given: Mutex::default() }
    }

    pub(super) fn given(&self) -> Vec<Given> {
        self.given.lock().clone()
    }

    /// Answers whoever asks, until told to stop.
    pub(super) async fn run(self: Arc<Self>, client: Client, stop: CancellationToken) -> anyhow::Result<()> {
        let open = "SELECT a.execution_id, (e.input ->> 'n')::bigint FROM workflow_execution_ask a
                      JOIN workflow_execution e ON e.id = a.execution_id WHERE a.kind = 'WAIT' AND a.status = 'OPEN'";
        let (mut known, mut tasks) = (BTreeSet::new(), JoinSet::new());
        while !stop.is_cancelled() {
            for row in client.query(open, &[]).await.context("look who asks")? {
                let (execution, n): (Uuid, i64) = (row.get(0), row.get(1));
                let Some(plan) = self.plans.get(&n).filter(|_| known.insert(n)) else { continue };
                let (approver, doing) = (Arc::clone(&self), plan.doing);
                tasks.spawn(async move { approver.asked(n, doing, execution).await });
            }
            while let Some(done) = tasks.try_join_next() {
                done.context("an answer broke off")??;
            }
            tokio::select! { () = tokio::time::sleep(LOOK) => {}, () = stop.cancelled() => {} }
        }
        while let Some(done) = tasks.join_next().await {
            done.context("an answer broke off")??;
        }
        Ok(())
    }

    async fn asked(&self, n: i64, doing: Doing, execution: Uuid) -> anyhow::Result<()> {
        match doing {
            Doing::Answer { early: false } => self.answer(n, execution).await,
            Doing::Race { tokens, times } => self.race(n, execution, tokens, times).await,
            Doing::Append { early: false, open_ms } => self.append(n, open_ms).await,
            Doing::Answer { early: true }
            | Doing::Append { early: true, .. }
            | Doing::Nothing
            | Doing::Elsewhere
            | Doing::Cancel { .. } => Ok(()),
        }
    }

    /// With a key; asked for or not.
    pub(super) async fn answer(&self, n: i64, execution: Uuid) -> anyhow::Result<()> {
        let mut asker = Asker::new(&self.bases, Some(&self.key), place_of(n))?;
        let path = format!("api/v1/workflow/executions/{execution}/answers/{WAIT}");
        self.give(&mut asker, &path, n, choice_of(n, 0)).await
    }

    /// Several tokens, each shown several times, all at once.
    async fn race(&self, n: i64, execution: Uuid, tokens: usize, times: usize) -> anyhow::Result<()> {
        let mut asker = Asker::new(&self.bases, Some(&self.key), place_of(n))?;
        let path = format!("api/v1/workflow/executions/{execution}/answers/{WAIT}/token");
        let mut paths = Vec::new();
        for _ in 0..tokens {
            let made = asker.ask(&path, &json!({})).await?;
            let Some(token) = made.body["token"].as_str() else {
                bail!("a token was answered {}: {}", made.status, made.body);
            };
            paths.extend(std::iter::repeat_n(format!("answers/{token}"), times));
        }
        let answers = paths.iter().enumerate().map(|(at, path)| async move {
            let mut asker = Asker::new(&self.bases, None, place_of(n) + at)?;
            self.give(&mut asker, path, n, choice_of(n, at)).await
        });
        futures_util::future::try_join_all(answers).await.map(drop)
    }

    async fn give(&self, asker: &mut Asker, path: &str, n: i64, choice: i64) -> anyhow::Result<()> {
        let answer = asker.ask(path, &json!({ "data": { "choice": choice } })).await?;
        let told = match answer.status {
            status if status.is_success() => Told::Accepted,
            StatusCode::CONFLICT | StatusCode::NOT_FOUND if answer.again => Told::Unclear,
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Told::Refused,
            status => bail!("an answer was answered {status}: {}", answer.body),
        };
        self.given.lock().push(Given { n, choice, told });
        Ok(())
    }

    /// The event that is waited for, behind another of its type.
    pub(super) async fn append(&self, n: i64, open_ms: Option<u64>) -> anyhow::Result<()> {
        let plan = self.plans.get(&n).context("an event has its plan")?;
        let workspace = self.workspaces[plan.tenant];
        let data = [json!({ "n": -n, "mark": 0 }), json!({ "n": n, "mark": value_of(n, 5) })];
        match open_ms {
            Some(open_ms) => self.append_in(workspace, &data, ms(open_ms)).await,
            None => self.append_by_api(n, workspace, data.into()).await,
        }
    }

    /// In a transaction that is open for so long.
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
        let mut asker = Asker::new(&self.bases, Some(&self.key), place_of(n))?;
        let answer = asker.ask("api/v1/events", &json!({ "workspaceId": workspace, "events": events })).await?;
        if !answer.status.is_success() {
            bail!("events were answered {}: {}", answer.status, answer.body);
        }
        Ok(())
    }
}

/// Which process is asked first.
fn place_of(n: i64) -> usize {
    usize::try_from(n).unwrap_or_default()
}

/// The choice of the so-manieth answer; no two are alike.
fn choice_of(n: i64, at: usize) -> i64 {
    n * 100 + 1 + i64::try_from(at).unwrap_or_default()
}
