//! A real `pg_dump` whose output nobody reads, so that it stays open as long as needed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::process::{Child, Command};

use crate::cluster::Cluster;

const OPENS_WITHIN: Duration = Duration::from_secs(30);

/// A dump that holds a snapshot and locks every table.
pub(super) struct Dump {
    child: Child,
}

impl Dump {
    /// Starts a dump. Returns when it holds its locks.
    pub(super) async fn open(cluster: &Cluster) -> anyhow::Result<Dump> {
        let tool = std::env::var_os("FOREBAY_PG_BIN")
            .map_or_else(|| "pg_dump".into(), |dir| std::path::Path::new(&dir).join("pg_dump"));
        let mut command = Command::new(tool);
        command.args(["--dbname", &cluster.url()]).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().context("run pg_dump")?;
        let client = cluster.target()?.connect().await?;
        let holds = "SELECT count(*) FROM pg_locks held JOIN pg_stat_activity session USING (pid)
                      WHERE session.application_name = 'pg_dump' AND held.relation = 'workflow_execution'::regclass";
        let began = Instant::now();
        while client.query_one(holds, &[]).await?.get::<_, i64>(0) == 0 {
            ensure!(began.elapsed() < OPENS_WITHIN, "pg_dump did not get its locks within 30 s");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Dump { child })
    }

    pub(super) async fn close(mut self) -> anyhow::Result<()> {
        ensure!(
            self.child.try_wait().context("check whether pg_dump still runs")?.is_none(),
            "pg_dump ended before the harness closed it"
        );
        self.child.kill().await.context("end pg_dump")
    }
}
