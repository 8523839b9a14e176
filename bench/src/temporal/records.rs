//! The rows that a handwritten workflow keeps of its runs and calls, as Forebay keeps them: what began, with which
//! input, and what it returned.
//!
//! Invariants
//! - A call is a commit before it is made, and a commit with its result. The first also begins the run, and the last
//!   ends it. So there are two commits for each call, as in the service.
//! - Each write is one prepared statement by primary key, and the tables have no other index. A program that knows one
//!   workflow cannot write these rows with less.
//! - There are no rows for what a handwritten program does not have: a queue with limits, a log of changes, fences.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use serde_json::Value;
use store::connect::Target;
use tokio::sync::Mutex;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use crate::measure::world::World;

/// The most commits at a time.
const CONNECTIONS: usize = 16;

const TABLES: &str = "
    CREATE TABLE hand_run (id text PRIMARY KEY, status text NOT NULL, input jsonb NOT NULL, output jsonb,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(), started_at timestamptz, completed_at timestamptz)
        WITH (fillfactor = 50);
    CREATE TABLE hand_call (run text NOT NULL, call text NOT NULL, status text NOT NULL, attempt int NOT NULL,
        input jsonb NOT NULL, output jsonb, started_at timestamptz NOT NULL, completed_at timestamptz,
        PRIMARY KEY (run, call)) WITH (fillfactor = 50)";

/// The statements, by the number that names them.
const STATEMENTS: [&str; 5] = [
    "INSERT INTO hand_run (id, status, input) SELECT id, 'PENDING', '{}' FROM unnest($1::text[]) AS id",
    "INSERT INTO hand_call (run, call, status, attempt, input, started_at)
     VALUES ($1, $2, 'RUNNING', 1, $3, clock_timestamp())
     ON CONFLICT (run, call) DO UPDATE SET attempt = hand_call.attempt + 1",
    "WITH begun AS (UPDATE hand_run SET status = 'RUNNING', started_at = clock_timestamp() WHERE id = $1)
     INSERT INTO hand_call (run, call, status, attempt, input, started_at)
     VALUES ($1, $2, 'RUNNING', 1, $3, clock_timestamp())
     ON CONFLICT (run, call) DO UPDATE SET attempt = hand_call.attempt + 1",
    "UPDATE hand_call SET status = 'COMPLETED', output = $3, completed_at = clock_timestamp()
      WHERE run = $1 AND call = $2",
    "WITH over AS (UPDATE hand_run SET status = 'COMPLETED', completed_at = clock_timestamp() WHERE id = $1)
     UPDATE hand_call SET status = 'COMPLETED', output = $3, completed_at = clock_timestamp()
      WHERE run = $1 AND call = $2",
];

/// The tables of a handwritten program, and its connections.
pub(super) struct Records {
    connections: Vec<Mutex<(Client, Vec<Statement>)>>,
    next: AtomicUsize,
}

impl Records {
    pub(super) async fn create(world: &World) -> Result<Records> {
        world.client.batch_execute(TABLES).await.context("create the tables of the handwritten program")?;
        let target = Target::new(&world.url)?;
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = target.connect().await?;
            client.batch_execute("SET search_path = forebay, public").await?;
            let mut statements = Vec::new();
            for statement in STATEMENTS {
                statements.push(client.prepare(statement).await.context("prepare a statement")?);
            }
            connections.push(Mutex::new((client, statements)));
        }
        Ok(Records { connections, next: AtomicUsize::new(0) })
    }

    /// Accepts runs.
    pub(super) async fn accept(&self, runs: &[String]) -> Result<()> {
        self.write(0, &[&runs]).await
    }

    /// Records that a call begins.
    pub(super) async fn begin(&self, run: &str, call: &str, is_first: bool, input: &Value) -> Result<()> {
        self.write(if is_first { 2 } else { 1 }, &[&run, &call, input]).await
    }

    /// Records what a call returned.
    pub(super) async fn end(&self, run: &str, call: &str, is_last: bool, output: &Value) -> Result<()> {
        self.write(if is_last { 4 } else { 3 }, &[&run, &call, output]).await
    }

    async fn write(&self, statement: usize, parameters: &[&(dyn ToSql + Sync)]) -> Result<()> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let connection = self.connections[at].lock().await;
        connection.0.execute(&connection.1[statement], parameters).await.context("write a row")?;
        Ok(())
    }
}
