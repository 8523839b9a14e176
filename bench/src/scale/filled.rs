//! A database full of executions that the real service ran, for the parts that measure what is stored.
//!
//! Invariants
//! - Every execution of a database has the same graph, and every node of it has one stored row.
//! - No table is touched by autovacuum once `stop_autovacuum` has returned, so each vacuum is the one that is measured.
//!
//! Not here: how executions are run and what they cost (`dispatch::lifecycle`).

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::dispatch::lifecycle::{Lifecycle, measure_graph};
use crate::measure::stats::round;
use crate::measure::world::World;

/// A measured workflow: LOG nodes, one after the other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) nodes: usize,
}

pub(super) const CHAINS: [Chain; 2] = [Chain { name: "one", nodes: 1 }, Chain { name: "ten", nodes: 10 }];

impl Chain {
    pub(super) fn document(&self) -> Value {
        let mut nodes = Map::new();
        for at in 0..self.nodes {
            let needs = if at == 0 { Vec::new() } else { vec![format!("n{}", at - 1)] };
            let node = json!({ "kind": "LOG", "with": { "message": "hello" }, "needs": needs });
            nodes.insert(format!("n{at}"), node);
        }
        json!({ "version": 1, "name": self.name, "nodes": nodes })
    }
}

/// The tables that keep executions.
pub(super) const EXECUTIONS: &str = "workflow_execution";
pub(super) const NODES: &str = "workflow_execution_node";

/// A database with ended executions of one chain.
pub(super) struct Filled {
    pub(super) world: World,
    pub(super) chain: &'static Chain,
    pub(super) life: Lifecycle,
    /// How many executions are kept.
    pub(super) executions: i64,
}

impl Filled {
    /// Runs this many executions, and a few more before the measurement of their cost.
    pub(super) async fn fill(cluster: &Cluster, chain: &'static Chain, items: usize) -> Result<Filled> {
        let world = World::create(cluster, &format!("scale_{}", chain.name)).await?;
        let life = measure_graph(&world, &chain.document(), items, async |_| Ok(())).await.context("the whole life")?;
        let mut filled = Filled { world, chain, life, executions: 0 };
        filled.executions = filled.count().await?;
        filled.settle().await?;
        Ok(filled)
    }

    /// Runs more executions, which are newer than all others. `executions` still counts only those before.
    pub(super) async fn add_newer(&self, items: usize) -> Result<()> {
        measure_graph(&self.world, &self.chain.document(), items, async |_| Ok(()))
            .await
            .context("newer executions")?;
        self.count().await?;
        self.settle().await
    }

    /// Leaves vacuums of the measured tables to the measurement.
    pub(super) async fn stop_autovacuum(&self) -> Result<()> {
        let tables = [EXECUTIONS, NODES].map(|table| format!("ALTER TABLE {table} SET (autovacuum_enabled = off)"));
        Ok(self.world.client.batch_execute(&tables.join("; ")).await?)
    }

    /// Counts the executions, and checks that each of them has ended and has all its nodes.
    pub(super) async fn count(&self) -> Result<i64> {
        let sql = "SELECT count(*), count(*) FILTER (WHERE status = 'COMPLETED'),
                          (SELECT count(*) FROM workflow_execution_node) FROM workflow_execution";
        let row = self.world.client.query_one(sql, &[]).await.context("count executions")?;
        let (all, completed, nodes): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        ensure!(all == completed, "{} of {all} executions did not complete", all - completed);
        let expected = all * i64::try_from(self.chain.nodes)?;
        ensure!(nodes == expected, "{all} executions have {nodes} nodes, not {expected}");
        Ok(all)
    }

    async fn settle(&self) -> Result<()> {
        self.world.settle().await
    }
}

/// What one execution costs until its end.
pub(super) fn life_json(life: &Lifecycle) -> Value {
    json!({
        "per_s": life.per_s.round(),
        "server_us": life.database_us.round(),
        "service_us": life.service_us.round(),
        "wal_bytes": life.wal_bytes.round(),
        "commits": round(life.commits),
    })
}
