//! A workspace's own rules for outbound calls, as stored.
//!
//! Not here: what an entry means (`engine::outbound`).

use kernel::ids::WorkspaceId;
use serde_json::json;

use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store};

/// Hosts that the workspace may call in addition, and hosts that it may not call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outbound {
    pub allow: Vec<String>,
    pub deny: Vec<String>,
}

impl Store {
    /// A workspace's own rules. An unknown or deleted workspace is `NotFound`.
    pub async fn workspace_outbound(&self, workspace: WorkspaceId) -> Result<Outbound, Error> {
        let row = self.one(sql!("workspace/outbound"), &[&workspace.0]).await?;
        Ok(Outbound { allow: row.try_get("outbound_allow")?, deny: row.try_get("outbound_deny")? })
    }

    /// Replaces a workspace's rules.
    pub async fn set_workspace_outbound(
        &self,
        workspace: WorkspaceId,
        rules: &Outbound,
        actor: &str,
    ) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let changed =
            transaction.query_opt(sql!("workspace/set_outbound"), &[&workspace.0, &rules.allow, &rules.deny]).await?;
        changed.ok_or(Error::NotFound)?;
        let detail = json!({ "allow": rules.allow, "deny": rules.deny });
        audit(&transaction, Some(workspace), actor, "workspace.outbound", "workspace", workspace.0, &detail).await?;
        Ok(transaction.commit().await?)
    }
}
