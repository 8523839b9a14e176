//! The statements that are compared on both copies: inserts of executions with their nodes, and lookups by id.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use store::connect::Target;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use crate::measure::stats::{median, round};
use crate::scale::filled::Filled;

const ROUNDS: usize = 5;
/// How many ids the statements for many ids have.
const MANY: usize = 100;
/// How many ids each case uses in a round, at scale 1.
const IDS: f64 = 5_000.0;

/// A statement that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scale) enum Comparison {
    InsertOne,
    InsertMany,
    LookUpOne,
    /// `id = ANY ($1)`, as most of the service's statements for several executions do.
    LookUpArray,
    /// The same ids, each looked up by itself in one statement.
    LookUpEach,
}

impl Comparison {
    const ALL: [Comparison; 5] = [
        Comparison::InsertOne,
        Comparison::InsertMany,
        Comparison::LookUpOne,
        Comparison::LookUpArray,
        Comparison::LookUpEach,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Comparison::InsertOne => "insert_one",
            Comparison::InsertMany => "insert_many",
            Comparison::LookUpOne => "look_up_one",
            Comparison::LookUpArray => "look_up_array",
            Comparison::LookUpEach => "look_up_each",
        }
    }

    /// The name for people.
    pub(in crate::scale) fn title(self) -> &'static str {
        match self {
            Comparison::InsertOne => "insert one execution with its nodes",
            Comparison::InsertMany => "insert 100 executions with their nodes",
            Comparison::LookUpOne => "look up one id",
            Comparison::LookUpArray => "look up 100 ids, `id = ANY ($1)`",
            Comparison::LookUpEach => "look up 100 ids, each by itself in one statement",
        }
    }

    /// How many ids a statement has.
    fn ids(self) -> usize {
        match self {
            Comparison::InsertOne | Comparison::LookUpOne => 1,
            Comparison::InsertMany | Comparison::LookUpArray | Comparison::LookUpEach => MANY,
        }
    }

    fn writes(self) -> bool {
        matches!(self, Comparison::InsertOne | Comparison::InsertMany)
    }

    fn sql(self, schema: &str, nodes: usize) -> String {
        match self {
            Comparison::InsertOne | Comparison::InsertMany => {
                INSERT.replace("{schema}", schema).replace("{nodes}", &nodes.to_string())
            }
            Comparison::LookUpOne => {
                format!("SELECT status, completed_at FROM {schema}.workflow_execution WHERE id = $1::uuid")
            }
            Comparison::LookUpArray => {
                format!("SELECT status, completed_at FROM {schema}.workflow_execution WHERE id = ANY ($1::uuid[])")
            }
            Comparison::LookUpEach => format!(
                "SELECT found.status, found.completed_at FROM unnest($1::uuid[]) AS wanted(id)
                  CROSS JOIN LATERAL (SELECT status, completed_at FROM {schema}.workflow_execution execution
                                       WHERE execution.id = wanted.id LIMIT 1) found"
            ),
        }
    }
}

const INSERT: &str = "WITH ids AS MATERIALIZED (SELECT id FROM unnest($1::uuid[]) AS id),
     like_others AS MATERIALIZED (SELECT workspace_id, workflow_definition_id, version_id
                                    FROM forebay.workflow_execution LIMIT 1),
     executions AS (
        INSERT INTO {schema}.workflow_execution (id, workspace_id, workflow_definition_id, version_id, status,
            semantics, trigger, input, deadline_at, root)
        SELECT id, workspace_id, workflow_definition_id, version_id, 'PENDING', 1,
               '{\"type\": \"api\", \"actor\": \"bench\"}', '{}', now() + interval '30 days', id
          FROM ids CROSS JOIN like_others)
     INSERT INTO {schema}.workflow_execution_node (execution_id, node, iteration, workspace_id, status, attempt, seq,
         input, output, started_at, completed_at, duration_ms)
     SELECT id, 'n' || node, 0, workspace_id, 'COMPLETED', 1, node, '{\"message\": \"hello\"}',
            '{\"message\": \"hello\"}', clock_timestamp(), clock_timestamp(), 0
       FROM ids CROSS JOIN like_others CROSS JOIN generate_series(1, {nodes}) AS node";

/// The time of one statement on each copy, in microseconds: medians of several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::scale) struct Times {
    pub(in crate::scale) plain_us: f64,
    pub(in crate::scale) parted_us: f64,
}

impl Times {
    /// How many times as long it takes with partitions.
    pub(in crate::scale) fn ratio(&self) -> f64 {
        self.parted_us / self.plain_us
    }

    pub(super) fn json(&self) -> Value {
        json!({ "plain": round(self.plain_us), "partitioned": round(self.parted_us), "ratio": round(self.ratio()) })
    }
}

/// Compares all cases on the copies in two schemas: plain, partitioned.
pub(super) async fn measure(filled: &Filled, schemas: [&str; 2], scale: f64) -> Result<Vec<(Comparison, Times)>> {
    let client = Target::new(&filled.world.url)?.connect().await?;
    client.batch_execute("SET synchronous_commit = off; SET plan_cache_mode = force_generic_plan").await?;
    let count = ((IDS * scale) as usize).clamp(MANY, IDS as usize);
    let some = "SELECT id FROM forebay.workflow_execution ORDER BY md5(id::text) LIMIT $1::bigint";
    let rows = client.query(some, &[&i64::try_from(count)?]).await.context("choose ids")?;
    let known: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    let mut all = Vec::new();
    for case in Comparison::ALL {
        let mut statements = Vec::new();
        for schema in schemas {
            statements.push(client.prepare(&case.sql(schema, filled.chain.nodes)).await.context(case.name())?);
        }
        let mut taken = [Vec::new(), Vec::new()];
        // The first round warms the caches, and the copies take turns in being first.
        for round in 0..=ROUNDS {
            for turn in 0..schemas.len() {
                let at = (round + turn) % schemas.len();
                let ids = if case.writes() { (0..count).map(|_| store::new_id()).collect() } else { known.clone() };
                let us = time(&client, &statements[at], case, &ids).await.context(case.name())?;
                if round > 0 {
                    taken[at].push(us);
                }
            }
        }
        all.push((case, Times { plain_us: median(&taken[0]), parted_us: median(&taken[1]) }));
    }
    Ok(all)
}

/// The mean time of a statement, in microseconds.
async fn time(client: &Client, statement: &Statement, case: Comparison, ids: &[Uuid]) -> Result<f64> {
    let began = Instant::now();
    let mut statements = 0.0;
    for some in ids.chunks_exact(case.ids()) {
        let param: &(dyn ToSql + Sync) = if case == Comparison::LookUpOne { &some[0] } else { &some };
        let rows = client.query(statement, &[param]).await?;
        ensure!(case.writes() || rows.len() == some.len(), "{} of {} ids were found", rows.len(), some.len());
        statements += 1.0;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / statements)
}
