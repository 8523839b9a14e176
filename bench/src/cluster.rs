//! A private PostgreSQL for one run, gone at its end.
//!
//! Invariants
//! - However this process ends, the server stops (`private_postgres` sees to it).
//! - Two runs share nothing: each has a cluster of its own.

use std::path::{Path, PathBuf};

use anyhow::Context;
use private_postgres::{Launcher, Options, PrivatePostgres};
use serde_json::{Map, Value, json};
use store::connect::Target;

/// What a commit is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commits {
    /// Flushed to disk, as in production: for figures.
    Flushed,
    /// In memory only: for runs in which the server itself is never killed.
    Fast,
}

/// A running server with an empty, migrated database.
#[derive(Debug)]
pub struct Cluster {
    postgres: PrivatePostgres,
    /// To be removed at the end; an ephemeral cluster removes its own.
    dir: Option<PathBuf>,
}

impl Cluster {
    /// Starts a server. `forebay` is the service's binary, which launches it.
    pub async fn start(forebay: &Path, commits: Commits, max_connections: u32) -> anyhow::Result<Cluster> {
        let parent = std::env::temp_dir();
        let dir = match commits {
            Commits::Flushed => Some(parent.join(format!("forebay-bench-{}", store::new_id().simple()))),
            Commits::Fast => None,
        };
        Cluster::start_in(forebay, dir, max_connections).await
    }

    /// Starts it again with statements counted, where the server has the extension for it.
    pub async fn counting(self, forebay: &Path, max_connections: u32) -> anyhow::Result<Cluster> {
        let client = self.target()?.connect().await?;
        let known = "SELECT 1 FROM pg_available_extensions WHERE name = 'pg_stat_statements'";
        if self.dir.is_none() || client.query_opt(known, &[]).await?.is_none() {
            return Ok(self);
        }
        client.batch_execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'").await?;
        drop(client);
        self.postgres.stop().await.context("stop PostgreSQL")?;
        let cluster = Cluster::start_in(forebay, self.dir, max_connections).await?;
        let client = cluster.target()?.connect().await?;
        client.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await?;
        Ok(cluster)
    }

    async fn start_in(forebay: &Path, dir: Option<PathBuf>, max_connections: u32) -> anyhow::Result<Cluster> {
        let launcher = Launcher { program: forebay.to_owned(), args: vec!["postgres-child".into()] };
        let mut options = Options::new(dir.clone().unwrap_or_else(std::env::temp_dir), launcher);
        options.ephemeral = dir.is_none();
        options.postgres_bin = std::env::var_os("FOREBAY_PG_BIN").map(PathBuf::from);
        options.search_path = std::env::var_os("PATH");
        options.runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        options.max_connections = max_connections;
        let postgres = PrivatePostgres::start(options).await.context("start PostgreSQL")?;
        let cluster = Cluster { postgres, dir };
        store::migrate::migrate(&cluster.target()?).await.context("migrate")?;
        Ok(cluster)
    }

    pub fn url(&self) -> String {
        self.postgres.url()
    }

    /// A URL whose sessions carry a name, by which a trigger can tell who wrote.
    pub fn url_as(&self, name: &str) -> String {
        format!("{}&application_name={name}", self.url())
    }

    /// For this program itself, whose statements may name tables without their schema.
    pub fn target(&self) -> anyhow::Result<Target> {
        Ok(Target::new(&format!("{}&options=-csearch_path%3Dforebay%2Cpublic", self.url_as("harness")))?)
    }

    /// What figures depend on.
    pub async fn settings(&self) -> anyhow::Result<Map<String, Value>> {
        let client = self.target()?.connect().await?;
        let names = ["server_version", "fsync", "synchronous_commit", "shared_buffers", "jit"];
        let sql = "SELECT name, current_setting(name) FROM unnest($1::text[]) AS name";
        let rows = client.query(sql, &[&names.as_slice()]).await?;
        Ok(rows.iter().map(|row| (row.get::<_, String>(0), json!(row.get::<_, String>(1)))).collect())
    }

    /// Stops the server and removes what it wrote.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.postgres.stop().await.context("stop PostgreSQL")?;
        if let Some(dir) = self.dir {
            std::fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        Ok(())
    }
}

/// The service's binary: given, or the one built beside this program.
pub fn forebay(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let path = match given {
        Some(path) => path,
        None => std::env::current_exe().context("find this program's own file")?.with_file_name("forebay"),
    };
    path.canonicalize().with_context(|| format!("find {}: build it with cargo build -p forebay", path.display()))
}
