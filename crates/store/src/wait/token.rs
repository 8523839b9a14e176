//! Tokens that answer one wait, once, without an API key.
//!
//! Invariants
//! - A token has 256 random bits, is shown once and stored as a hash. A checksum rejects a mistyped one without a
//!   database query.
//! - A token is marked as used in the transaction that stores its answer.
//! - A token answers only its own wait, and expires no later than its execution's deadline.
//!
//! Not here: which nodes are waits (`kernel`), handling a request (`server`).

use std::time::Duration;

use jiff::Timestamp;
use kernel::ids::{ExecutionId, VersionId, WorkspaceId};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{AnswerOutcome, WaitKey, wait_key};
use crate::access::token::{self, Kind};
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store};

/// The maximum number of tokens for one wait.
const MOST: i64 = 1_000;

/// The kind of tokens that answer a wait.
#[derive(Debug)]
pub enum AnswerToken {}

impl Kind for AnswerToken {
    const PREFIX: &'static str = "fba_";
}

pub type Token = token::Token<AnswerToken>;

/// A new token.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub token: Token,
    pub expires_at: Timestamp,
}

/// The wait that a token answers.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenWait {
    pub key: WaitKey,
    pub workspace: WorkspaceId,
    pub version: VersionId,
    pub workflow: Option<String>,
    pub expires_at: Timestamp,
    pub used: bool,
    /// The wait's status; None: not open yet.
    pub status: Option<kernel::wait::Status>,
    pub input: Option<Value>,
    /// When the wait expires.
    pub wait_expires_at: Option<Timestamp>,
}

impl Store {
    /// Creates a token for a wait of an execution that has not ended, with its audit row in one commit. The result is a
    /// `Conflict` if the execution has ended or the wait has too many tokens.
    pub async fn create_token(
        &self,
        key: &WaitKey,
        workspace: Option<WorkspaceId>,
        lasts: Duration,
        actor: &str,
    ) -> Result<NewToken, Error> {
        let token = Token::generate()?;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (of, lasts) = (workspace.map(|id| id.0), lasts.as_secs_f64());
        let WaitKey { execution, node, iteration } = key;
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
        Ok(NewToken { token, expires_at })
    }

    /// Finds the wait that a token answers. An invalid or expired token is `NotFound`; a token that was used is found
    /// and reported as used.
    pub async fn wait_of_token(&self, token: &Token) -> Result<TokenWait, Error> {
        let row = self.one(sql!("workflow_execution_token/find"), &[&token.hash()]).await?;
        let status: Option<&str> = row.try_get("status")?;
        let status = status.map(|text| {
            kernel::wait::Status::parse(text).ok_or_else(|| Error::Corrupt(format!("the status of a wait is {text:?}")))
        });
        Ok(TokenWait {
            key: wait_key(&row, ExecutionId(row.try_get::<_, Uuid>("execution_id")?))?,
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

    /// Answers the wait of a token, and marks the token as used. Of several concurrent calls, one is accepted.
    pub async fn answer_by_token(&self, token: &Token, key: &WaitKey, data: &Value) -> Result<AnswerOutcome, Error> {
        self.answer_with(key, None, Some(token), data, ("token", false)).await
    }
}
