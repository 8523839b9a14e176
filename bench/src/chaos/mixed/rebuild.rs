//! Checks that the table matches its facts, in two ways: by the service's own check, and by rebuilding a table that
//! lost all of its rows.
//!
//! Invariants
//! - The rows before and after are compared in every column, as PostgreSQL prints them (`::text`).

use std::path::Path;

use anyhow::Context;
use store::connect::Client;
use tokio::process::Command;

use crate::report::say;

pub(super) async fn is_equal(client: &Client, forebay: &Path, url: &str) -> anyhow::Result<bool> {
    let before = table(client).await?;
    let checked = projection(forebay, "check", url).await?;
    client
        .batch_execute("BEGIN; SET LOCAL forebay.projection = 'rebuild'; DELETE FROM workflow_queue_projection; COMMIT")
        .await
        .context("delete all rows of the table")?;
    let rebuilt = projection(forebay, "rebuild", url).await?;
    Ok(checked && rebuilt && table(client).await? == before)
}

/// The number of rows, and a hash of all of them.
async fn table(client: &Client) -> anyhow::Result<(i64, Option<String>)> {
    let sql = "SELECT count(*), md5(string_agg(p::text, ' ' ORDER BY p.id)) FROM workflow_queue_projection p";
    let row = client.query_one(sql, &[]).await.context("read the table")?;
    Ok((row.get(0), row.get(1)))
}

async fn projection(forebay: &Path, verb: &str, url: &str) -> anyhow::Result<bool> {
    let mut command = Command::new(forebay);
    command.args(["job", verb, "--database-url", url]);
    let done = command.output().await.with_context(|| format!("run forebay job {verb}"))?;
    let text = [done.stdout, done.stderr].concat();
    say(format!("projection {verb}: {}", String::from_utf8_lossy(&text).trim()));
    Ok(done.status.success())
}
