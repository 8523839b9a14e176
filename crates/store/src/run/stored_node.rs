//! The nodes of a run as they are stored, from which a run is resumed.
//!
//! Invariants
//! - A row that cannot be read affects its own run only.
//!
//! Not here: loading the runs (`run`), the items of loops (`iteration`).

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::ids::{ExecutionId, Label, NodeKey};
use kernel::run::failure::Failure;
use kernel::run::node;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::failure_of;
use crate::queue::claim::millis;
use crate::sql::sql;
use crate::{Error, Store, parsed};

/// A stored node of a run.
#[derive(Clone, Debug)]
pub struct StoredNode {
    pub node: NodeKey,
    pub status: node::Status,
    pub attempt: u32,
    pub label: Option<Label>,
    pub output: Option<Value>,
    pub error: Option<Failure>,
    pub next_in: Option<Duration>,
}

impl Store {
    /// The nodes of one run, without the iterations of its loops.
    pub async fn run_nodes(&self, execution: ExecutionId) -> Result<Vec<StoredNode>, Error> {
        let mut nodes = self.load_nodes(&[execution.0]).await?;
        nodes.remove(&execution).unwrap_or_else(|| Ok(Vec::new()))
    }

    pub(super) async fn load_nodes(
        &self,
        ids: &[Uuid],
    ) -> Result<BTreeMap<ExecutionId, Result<Vec<StoredNode>, Error>>, Error> {
        let rows = self.query(sql!("workflow_execution_node/load"), &[&ids]).await?;
        let mut nodes: BTreeMap<ExecutionId, Result<Vec<StoredNode>, Error>> = BTreeMap::new();
        for row in &rows {
            let of = nodes.entry(ExecutionId(row.try_get("execution_id")?)).or_insert_with(|| Ok(Vec::new()));
            match (of.as_mut(), stored_node(row)) {
                (Ok(known), Ok(node)) => known.push(node),
                (Ok(_), Err(error)) => *of = Err(error),
                (Err(_), _) => {}
            }
        }
        Ok(nodes)
    }
}

pub(crate) fn stored_node(row: &Row) -> Result<StoredNode, Error> {
    let corrupt = |what: &dyn std::fmt::Display| Error::Corrupt(format!("node row: {what}"));
    let label: Option<&str> = row.try_get("label")?;
    let error: Option<Value> = row.try_get("error")?;
    let attempt: i32 = row.try_get("attempt")?;
    Ok(StoredNode {
        node: NodeKey::new(row.try_get("node")?).map_err(|bad| corrupt(&bad))?,
        status: parsed(row, "status", node::Status::parse)?,
        attempt: u32::try_from(attempt).map_err(|bad| corrupt(&bad))?,
        label: label.map(Label::new).transpose().map_err(|bad| corrupt(&bad))?,
        output: row.try_get("output")?,
        error: error.map(failure_of),
        next_in: row.try_get::<_, Option<i64>>("next_in_ms")?.map(millis),
    })
}
