//! PostgreSQL, all of it: the schema, every statement, and the rows as kernel types.
//!
//! Invariants
//! - Only here is SQL. A row becomes a kernel type at this edge or is reported as corrupt.
//! - Every write that moves a status names the status it leaves and the claim or epoch it holds.
//! - The database's clock is the only one; transactions are short and span no network call.
//!
//! Not here: deciding (`kernel`), when to look (`server`'s loops), running graphs (`engine`).

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
pub mod wait;
pub mod webhook;
pub mod workspace;

use deadpool_postgres::Pool;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use tracing::Instrument as _;
use uuid::Uuid;

pub use error::Error;

use connect::{Target, UrlError};

/// The store over one pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: Pool,
}

/// The connections of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    pub in_use: usize,
    pub idle: usize,
    pub max: usize,
    /// Calls that wait for one.
    pub waiting: usize,
}

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Store {
    /// A store that uses at most `connections` connections, opened as they are needed.
    pub fn new(target: &Target, connections: usize) -> Result<Store, UrlError> {
        Ok(Store { pool: target.pool(connections)? })
    }

    /// Does the database answer?
    pub async fn ping(&self) -> Result<(), Error> {
        self.query("SELECT 1", &[]).await.map(drop)
    }

    /// How the connections are used.
    pub fn pool_use(&self) -> PoolUse {
        let status = self.pool.status();
        let in_use = status.size.saturating_sub(status.available);
        PoolUse { in_use, idle: status.available, max: status.max_size, waiting: status.waiting }
    }

    async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, Error> {
        let asked = async {
            let client = self.pool.get().await?;
            let statement = client.prepare_cached(sql).await?;
            Ok(client.query(&statement, params).await?)
        };
        asked.instrument(signals::span::of(sql)).await
    }

    async fn one(&self, sql: &'static str, params: Params<'_>) -> Result<Row, Error> {
        self.query(sql, params).await?.pop().ok_or(Error::NotFound)
    }

    async fn execute(&self, sql: &'static str, params: Params<'_>) -> Result<u64, Error> {
        let asked = async {
            let client = self.pool.get().await?;
            let statement = client.prepare_cached(sql).await?;
            Ok(client.execute(&statement, params).await?)
        };
        asked.instrument(signals::span::of(sql)).await
    }
}

/// A new id: time-ordered, and monotonic within this process.
pub fn new_id() -> Uuid {
    Uuid::now_v7()
}

/// Reads a column that must name one of a kernel enum's values.
fn parsed<T>(row: &Row, column: &str, parse: fn(&str) -> Option<T>) -> Result<T, Error> {
    let text: &str = row.try_get(column)?;
    parse(text).ok_or_else(|| Error::Corrupt(format!("{column} is {text:?}")))
}
