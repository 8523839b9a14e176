//! All access to PostgreSQL: the schema, every statement, and the conversion of rows to kernel types.
//!
//! Invariants
//! - Only this crate contains SQL. A row is converted to a kernel type here, or is reported as corrupt.
//! - Every write that moves a status names the status it leaves and the claim or epoch it holds.
//! - Only the database's clock is used. Transactions are short and contain no network call to another system.
//!
//! Not here: decisions (`kernel`), when to poll (`server`'s loops), running graphs (`engine`).

pub mod access;
pub mod activity;
pub mod batch;
pub mod connect;
pub mod definition;
mod error;
pub mod event;
pub mod execution;
pub mod feed;
pub mod job;
mod json;
pub mod migrate;
pub mod page;
pub mod process;
pub mod queue;
pub mod release;
pub mod retention;
pub mod run;
pub mod schedule;
pub mod signals;
mod sql;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trigger;
pub mod wait;
pub mod webhook;
pub mod workspace;

use deadpool_postgres::Pool;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use tracing::Instrument as _;
use uuid::Uuid;

pub use error::Error;

use connect::{DatabaseUrlError, Target};

/// Access to the database over one connection pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: Pool,
}

/// How many connections of a pool are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    pub in_use: usize,
    pub idle: usize,
    pub max: usize,
    /// Calls that wait for a connection.
    pub waiting: usize,
}

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Store {
    /// A store that uses at most `connections` connections, opened as they are needed.
    pub fn new(target: &Target, connections: usize) -> Result<Store, DatabaseUrlError> {
        Ok(Store { pool: target.pool(connections)? })
    }

    /// Does the database answer?
    pub async fn ping(&self) -> Result<(), Error> {
        self.query("SELECT 1", &[]).await.map(drop)
    }

    /// How many connections are in use.
    pub fn pool_use(&self) -> PoolUse {
        let status = self.pool.status();
        let in_use = status.size.saturating_sub(status.available);
        PoolUse { in_use, idle: status.available, max: status.max_size, waiting: status.waiting }
    }

    async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, Error> {
        let answer = async {
            let client = self.pool.get().await?;
            let statement = client.prepare_cached(sql).await?;
            Ok(client.query(&statement, params).await?)
        };
        answer.instrument(signals::span::for_statement(sql)).await
    }

    async fn one(&self, sql: &'static str, params: Params<'_>) -> Result<Row, Error> {
        self.query(sql, params).await?.pop().ok_or(Error::NotFound)
    }

    async fn execute(&self, sql: &'static str, params: Params<'_>) -> Result<u64, Error> {
        let answer = async {
            let client = self.pool.get().await?;
            let statement = client.prepare_cached(sql).await?;
            Ok(client.execute(&statement, params).await?)
        };
        answer.instrument(signals::span::for_statement(sql)).await
    }
}

/// A new id: time-ordered, and monotonic within this process.
pub fn new_id() -> Uuid {
    Uuid::now_v7()
}

/// Parses a text column that must contain a value of a kernel enum.
fn parsed<T>(row: &Row, column: &str, parse: fn(&str) -> Option<T>) -> Result<T, Error> {
    let text: &str = row.try_get(column)?;
    parse(text).ok_or_else(|| Error::Corrupt(format!("{column} is {text:?}")))
}
