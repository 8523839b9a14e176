//! Support for the end-to-end tests: they run the real binary as processes and talk to it over HTTP.
//!
//! Invariants
//! - Nothing sleeps for a fixed time: a condition is polled until it is true or a deadline passes.
//! - Every process is killed when its handle is dropped. If the test failed, the log of the process is shown.

pub(crate) mod cli;
pub(crate) mod collector;
pub(crate) mod dev;
pub(crate) mod echo;
pub(crate) mod engine;
pub(crate) mod gate;
pub(crate) mod http;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod page;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod receiver;
pub(crate) mod relay;
pub(crate) mod scene;
pub(crate) mod server;
pub(crate) mod shared;
pub(crate) mod temporal;
pub(crate) mod tenant;
pub(crate) mod terminal;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) use engine::Engine;
pub(crate) use receiver::Receiver;
pub(crate) use scene::Scene;
pub(crate) use server::Server;
pub(crate) use shared::Shared;
pub(crate) use tenant::Tenant;

/// How long anything may take before its test gives up: generous, because the machine is shared.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The names of all migrations, in order.
pub(crate) fn migrations() -> Vec<String> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/migrations");
    let files = std::fs::read_dir(directory).expect("migrations");
    let stem = |file: std::fs::DirEntry| file.path().file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut names: Vec<String> = files.filter_map(|file| stem(file.expect("a file"))).collect();
    // By number: V2 before V10.
    let number = |name: &String| name[1..].split('_').next().and_then(|number| number.parse::<u32>().ok());
    names.sort_by_key(number);
    names
}

/// One database, one server on it, and a receiver that its workflows may call.
pub(crate) struct World {
    pub(crate) database: store::testing::Database,
    pub(crate) receiver: Receiver,
    pub(crate) server: Server,
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(&[]).await
    }

    pub(crate) async fn with(settings: &[&str]) -> World {
        let database = store::testing::Database::new().await;
        let receiver = Receiver::start().await;
        let server = Server::start(&database.url, &receiver.allowed(settings)).await;
        World { database, receiver, server }
    }

    /// Another server on the same database, opened by the same root key.
    pub(crate) async fn another(&self, settings: &[&str]) -> Server {
        let settings = self.receiver.allowed(settings);
        Server::start_with(&self.database.url, self.server.root_key(), &settings).await
    }

    pub(crate) async fn tenant(&self, tier: &str) -> Tenant {
        Tenant::new(self.server.api(), tier).await
    }

    /// One number, straight from the database.
    pub(crate) async fn count(&self, what: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {what}");
        self.database.client().await.query_one(&sql, &[]).await.expect("a count").get(0)
    }

    pub(crate) async fn run_sql(&self, sql: &str) {
        self.database.client().await.batch_execute(sql).await.expect("a statement");
    }

    /// All that is stored, table by table, except what changes by itself: heartbeats, leases, how far the log of
    /// changes reaches, when keys were used, and what was counted of backlogs.
    pub(crate) async fn everything(&self) -> BTreeMap<String, String> {
        let client = self.database.client().await;
        let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname IN ('forebay', 'public') AND tablename NOT IN ('process', 'shard_owner', 'shedlock', 'change_log_pruned', 'backlog')";
        let mut found = BTreeMap::new();
        for row in client.query(tables, &[]).await.expect("a catalogue") {
            let table: String = row.get(0);
            let sql = format!(
                "SELECT count(*) || ' ' || coalesce(md5(string_agg(r, ' ' ORDER BY r)), '')
                   FROM (SELECT (to_jsonb(t) - 'last_used_at')::text AS r FROM {table} t) x"
            );
            found.insert(table, client.query_one(&sql, &[]).await.expect("a sum").get(0));
        }
        found
    }
}
