//! Measures how many bytes a kept execution takes on disk.
//!
//! Invariants
//! - The tables were vacuumed, but not rewritten: their free space counts, as in production.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::filled::{EXECUTIONS, Filled, NODES};

/// Bytes of a table on disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TableBytes {
    pub(super) heap: f64,
    pub(super) indexes: f64,
    pub(super) toast: f64,
}

impl TableBytes {
    pub(super) fn total(&self) -> f64 {
        self.heap + self.indexes + self.toast
    }

    fn json(&self) -> Value {
        json!({ "heap": self.heap.round(), "indexes": self.indexes.round(), "toast": self.toast.round() })
    }
}

/// Bytes per kept execution.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeptBytes {
    pub(super) executions: f64,
    /// The execution's own row.
    pub(super) execution: TableBytes,
    /// The rows of all its nodes.
    pub(super) nodes: TableBytes,
    /// All other tables of the service together, in MB. They hold open work, and do not grow with what is kept.
    pub(super) others_mb: f64,
}

impl KeptBytes {
    pub(super) fn bytes(&self) -> f64 {
        self.execution.total() + self.nodes.total()
    }

    pub(super) fn index_bytes(&self) -> f64 {
        self.execution.indexes + self.nodes.indexes
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "executions": self.executions,
            "execution": self.execution.json(),
            "nodes": self.nodes.json(),
            "total": self.bytes().round(),
            "other_tables_mb": self.others_mb.round(),
        })
    }
}

pub(super) async fn measure(filled: &Filled) -> Result<KeptBytes> {
    let sql = "SELECT c.relname::text, pg_table_size(c.oid) - coalesce(toast.bytes, 0) AS heap,
                      pg_indexes_size(c.oid) AS indexes, coalesce(toast.bytes, 0)::bigint AS toast
                 FROM pg_class c
                 JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname IN ('forebay', 'public')
                 LEFT JOIN LATERAL (SELECT pg_total_relation_size(c.reltoastrelid) AS bytes
                                     WHERE c.reltoastrelid <> 0) toast ON true
                WHERE c.relkind = 'r'";
    let executions = filled.executions as f64;
    let mut kept = KeptBytes { executions, ..KeptBytes::default() };
    for row in filled.world.client.query(sql, &[]).await.context("read the sizes of tables")? {
        let name: String = row.try_get(0)?;
        let bytes = |column: usize| anyhow::Ok(row.try_get::<_, i64>(column)? as f64);
        let all = TableBytes { heap: bytes(1)?, indexes: bytes(2)?, toast: bytes(3)? };
        let each = TableBytes {
            heap: all.heap / executions,
            indexes: all.indexes / executions,
            toast: all.toast / executions,
        };
        match name.as_str() {
            EXECUTIONS => kept.execution = each,
            NODES => kept.nodes = each,
            _ => kept.others_mb += all.total() / 1e6,
        }
    }
    Ok(kept)
}
