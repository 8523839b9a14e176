//! Tokens that answer one wait, once, without a key.
//!
//! Invariants
//! - A token is 256 random bits, shown once and kept as a hash; its check sum refuses what was mistyped without asking
//!   the database.
//! - It is used up in the transaction that takes its answer.
//! - It opens nothing but its place, and not for longer than its execution may last.
//!
//! Not here: which nodes are waits (`kernel`), what is done with a request (`server`).

use std::time::Duration;

use jiff::Timestamp;
use kernel::ids::{ExecutionId, VersionId, WorkspaceId};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Place, Told, place_of};
use crate::access::token::{self, Kind};
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store};

/// The most tokens that one place may have.
const MOST: i64 = 1_000;

/// Tokens that answer a wait.
#[derive(Debug)]
pub enum Answers {}

impl Kind for Answers {
    const PREFIX: &'static str = "fba_";
}

pub type Token = token::Token<Answers>;

/// A token that was made.
#[derive(Clone, Debug)]
pub struct Minted {
    pub token: Token,
    pub expires_at: Timestamp,
}

/// What a token is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    pub place: Place,
    pub workspace: WorkspaceId,
    pub version: VersionId,
    pub workflow: Option<String>,
    pub expires_at: Timestamp,
    pub used: bool,
    /// How the wait stands; none: nobody asked yet.
    pub status: Option<kernel::wait::Status>,
    pub input: Option<Value>,
    /// Until when the wait waits.
    pub wait_expires_at: Option<Timestamp>,
}

impl Store {
    /// Makes a token for a place of an execution that has not ended, with its audit row in one commit. Not found if it
    /// has, and a conflict if the place has too many.
    pub async fn mint_token(
        &self,
        place: &Place,
        workspace: Option<WorkspaceId>,
        lasts: Duration,
        actor: &str,
    ) -> Result<Minted, Error> {
        let token = Token::generate()?;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (of, lasts) = (workspace.map(|id| id.0), lasts.as_secs_f64());
        let Place { execution, node, iteration } = place;
        let row = transaction
            .query_opt(
                sql!("workflow_execution_token/add"),
                &[&token.hash(), &execution.0, &node.as_str(), iteration, &of, &actor, &lasts, &MOST],
            )
            .await?
            .ok_or_else(|| Error::Conflict("the execution has ended, or this wait has too many tokens".to_owned()))?;
        let owner = WorkspaceId(row.try_get("workspace_id")?);
        let detail = json!({ "node": node, "iteration": iteration });
        audit(&transaction, Some(owner), actor, "wait.token", "execution", execution.0, &detail).await?;
        let expires_at = row.try_get("expires_at")?;
        transaction.commit().await?;
        Ok(Minted { token, expires_at })
    }

    /// What a token is for. Whatever is wrong with it is not found, but that it was used.
    pub async fn open_token(&self, token: &Token) -> Result<Pass, Error> {
        let row = self.one(sql!("workflow_execution_token/find"), &[&token.hash()]).await?;
        let status: Option<&str> = row.try_get("status")?;
        let status = status.map(|text| {
            kernel::wait::Status::parse(text).ok_or_else(|| Error::Corrupt(format!("the status of an ask is {text:?}")))
        });
        Ok(Pass {
            place: place_of(&row, ExecutionId(row.try_get::<_, Uuid>("execution_id")?))?,
            workspace: WorkspaceId(row.try_get("workspace_id")?),
            version: VersionId(row.try_get("version_id")?),
            workflow: row.try_get("workflow")?,
            expires_at: row.try_get("expires_at")?,
            used: row.try_get("used")?,
            status: status.transpose()?,
            input: row.try_get("input")?,
            wait_expires_at: row.try_get("wait_expires_at")?,
        })
    }

    /// Answers the wait that a token is for, and uses it up. Of 20 at once one is accepted.
    pub async fn answer_by_token(&self, token: &Token, place: &Place, data: &Value) -> Result<Told, Error> {
        self.answer_with(place, None, Some(token), data, ("token", false)).await
    }
}
