//! Compares tables partitioned by the time of their ids with plain ones.
//!
//! Invariants
//! - Both are copies of the same rows, with the same indexes, written in the same order. A partitioned table cannot
//!   have a unique index without the partition key. There the copy has an ordinary index, and the figures name it.
//! - The first partition holds exactly the executions that retention deletes from the service's own tables in the same
//!   run (`vacuum`). The newer executions are spread over 30 more partitions, as many as days are kept by default.
//! - Both copies take turns, over one connection whose commits are not flushed. A flush costs both the same.
//! - Plans are generic, as in the service's functions.

mod cases;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use self::cases::{Comparison, Times};
use super::filled::{EXECUTIONS, Filled, NODES};
use super::meter::{Meter, Spent};

/// How many partitions hold the newer executions.
const NEWER: i64 = 30;
/// Each table, with the column that has the id of the execution.
const TABLES: [(&str, &str); 2] = [(EXECUTIONS, "id"), (NODES, "execution_id")];
const PLAIN: &str = "plain";
const PARTED: &str = "parted";

/// What partitions cost and save.
pub(super) struct Partitions {
    pub(super) count: usize,
    pub(super) times: Vec<(Comparison, Times)>,
    /// Unique indexes that a partitioned table cannot have.
    pub(super) not_unique: Vec<String>,
    /// Dropping the partitions with the old executions. None until they are dropped.
    pub(super) dropped: Option<Spent>,
}

impl Partitions {
    pub(super) fn json(&self) -> Value {
        let times: Map<String, Value> =
            self.times.iter().map(|(case, times)| (case.name().to_owned(), times.json())).collect();
        json!({
            "partitions": self.count,
            "statements_us": times,
            "not_unique": self.not_unique,
            "drop": self.dropped.map(|spent| spent.json()),
        })
    }
}

/// Copies the tables and compares inserts and lookups.
pub(super) async fn compare(filled: &Filled, scale: f64) -> Result<Partitions> {
    let bounds = bounds(filled).await?;
    let not_unique = create(filled, &bounds).await.context("create the copies")?;
    fill(filled).await.context("fill the copies")?;
    let times = cases::measure(filled, [PLAIN, PARTED], scale).await.context("compare the copies")?;
    Ok(Partitions { count: bounds.len() + 1, times, not_unique, dropped: None })
}

/// Drops the partitions with the old executions.
pub(super) async fn drop_old(filled: &Filled) -> Result<Spent> {
    let world = &filled.world;
    let sql = format!("SELECT count(*) FROM {PARTED}.{EXECUTIONS}_0");
    let old: i64 = world.client.query_one(&sql, &[]).await?.try_get(0)?;
    ensure!(old == filled.executions, "the oldest partition has {old} executions, not {}", filled.executions);
    let meter = Meter::start(world).await?;
    let sql = format!("DROP TABLE {PARTED}.{NODES}_0, {PARTED}.{EXECUTIONS}_0");
    world.client.batch_execute(&sql).await.context("drop partitions")?;
    meter.stop(world).await
}

/// The first id of each partition except the oldest one.
async fn bounds(filled: &Filled) -> Result<Vec<Uuid>> {
    let sql = "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) - 1 - $1::bigint AS newer,
                                      count(*) OVER () - $1::bigint AS all_newer FROM workflow_execution) numbered
                WHERE newer >= 0 AND newer % greatest(all_newer / $2::bigint, 1) = 0 ORDER BY id LIMIT $2::bigint";
    let rows = filled.world.client.query(sql, &[&filled.executions, &NEWER]).await.context("divide the executions")?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Creates both copies without rows. Returns the names of the indexes that are not unique in the partitioned one.
async fn create(filled: &Filled, bounds: &[Uuid]) -> Result<Vec<String>> {
    let client = &filled.world.client;
    client.batch_execute(&format!("CREATE SCHEMA {PLAIN}; CREATE SCHEMA {PARTED}")).await?;
    let mut not_unique = Vec::new();
    for (table, key) in TABLES {
        let options = "SELECT array_to_string(reloptions, ', ') FROM pg_class
                        WHERE oid = ('forebay.' || $1::text)::regclass";
        let options: String = client.query_one(options, &[&table]).await?.try_get(0)?;
        let like = format!("(LIKE forebay.{table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)");
        let mut statements = vec![
            format!("CREATE TABLE {PLAIN}.{table} {like} WITH ({options})"),
            format!("CREATE TABLE {PARTED}.{table} {like} PARTITION BY RANGE ({key})"),
        ];
        for at in 0..=bounds.len() {
            let from = if at == 0 { "MINVALUE".to_owned() } else { format!("'{}'", bounds[at - 1]) };
            let to = bounds.get(at).map_or("MAXVALUE".to_owned(), |id| format!("'{id}'"));
            statements.push(format!(
                "CREATE TABLE {PARTED}.{table}_{at} PARTITION OF {PARTED}.{table} FOR VALUES FROM ({from}) TO ({to})
                   WITH ({options})"
            ));
        }
        let indexes = "SELECT pg_get_indexdef(i.indexrelid), i.indexrelid::regclass::text,
                              i.indisunique AND NOT a.attnum = ANY (i.indkey)
                         FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = $2
                        WHERE i.indrelid = ('forebay.' || $1::text)::regclass ORDER BY 1";
        for index in client.query(indexes, &[&table, &key]).await? {
            let (definition, loses_unique): (String, bool) = (index.try_get(0)?, index.try_get(2)?);
            let on = |schema: &str| definition.replacen(" ON forebay.", &format!(" ON {schema}."), 1);
            statements.push(on(PLAIN));
            if loses_unique {
                not_unique.push(index.try_get(1)?);
                statements.push(on(PARTED).replacen("CREATE UNIQUE INDEX", "CREATE INDEX", 1));
            } else {
                statements.push(on(PARTED));
            }
        }
        client.batch_execute(&statements.join(";\n")).await.with_context(|| format!("copy {table}"))?;
    }
    Ok(not_unique)
}

async fn fill(filled: &Filled) -> Result<()> {
    let client = &filled.world.client;
    for (table, key) in TABLES {
        for schema in [PLAIN, PARTED] {
            let sql = format!("INSERT INTO {schema}.{table} SELECT * FROM forebay.{table} ORDER BY {key}");
            client.batch_execute(&sql).await.with_context(|| format!("fill {schema}.{table}"))?;
            client.batch_execute(&format!("VACUUM (ANALYZE) {schema}.{table}")).await?;
        }
    }
    Ok(())
}
