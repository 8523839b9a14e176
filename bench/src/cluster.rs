//! A private PostgreSQL for one run, removed at its end.
//!
//! Invariants
//! - The server stops when this process ends in any way (`private_postgres` ensures this).
//! - Two runs share nothing: each has its own cluster.

use std::path::{Path, PathBuf};

use anyhow::Context;
use private_postgres::{Launcher, Options, PrivatePostgres};
use serde_json::{Map, Value, json};
use store::connect::Target;

/// How durable a commit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commits {
    /// Flushed to disk, as in production: for measurements.
    Flushed,
    /// Not flushed to disk: for runs that never kill the server.
    Fast,
}

/// A running server with an empty, migrated database.
#[derive(Debug)]
pub struct Cluster {
    postgres: PrivatePostgres,
    /// A directory to remove at the end. None for an ephemeral cluster, which removes its own directory.
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

    /// Restarts it with statement counting, if the server has the extension.
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

    /// A URL whose sessions have this `application_name`, so that a trigger can record which process wrote.
    pub fn url_as(&self, name: &str) -> String {
        format!("{}&application_name={name}", self.url())
    }

    /// For this program itself, whose statements may name tables without their schema.
    pub fn target(&self) -> anyhow::Result<Target> {
        Ok(Target::new(&format!("{}&options=-csearch_path%3Dforebay%2Cpublic", self.url_as("harness")))?)
    }

    /// The settings that figures depend on.
    pub async fn settings(&self) -> anyhow::Result<Map<String, Value>> {
        let client = self.target()?.connect().await?;
        let names = ["server_version", "fsync", "synchronous_commit", "shared_buffers", "jit"];
        let sql = "SELECT name, current_setting(name) FROM unnest($1::text[]) AS name";
        let rows = client.query(sql, &[&names.as_slice()]).await?;
        Ok(rows.iter().map(|row| (row.get::<_, String>(0), json!(row.get::<_, String>(1)))).collect())
    }

    /// Stops the server and removes its files.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.postgres.stop().await.context("stop PostgreSQL")?;
        if let Some(dir) = self.dir {
            std::fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        Ok(())
    }
}

/// The path of the service's binary: the given one, or the one built beside this program.
pub fn forebay_binary(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let path = match given {
        Some(path) => path,
        None => std::env::current_exe().context("find this program's own file")?.with_file_name("forebay"),
    };
    path.canonicalize().with_context(|| format!("find {}: build it with cargo build -p forebay", path.display()))
}
