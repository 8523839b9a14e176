//! `rerun`: an ended execution, started anew.

use anyhow::Context;
use serde_json::Value;
use server::wire;
use uuid::Uuid;

use super::Act;
use super::api::Answer;
use super::connection::{Place, Session};
use super::execution::path;
use super::input::{self, Setting};
use super::run::Follow;
use super::which::{self, Which};
use crate::exit::Exit;

/// Run an ended execution again, whole or from where it failed: a new one, linked to it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It has the old one's input, but for what --input or -i change, and runs the version that ran then unless --published \
says otherwise. With --from failed or --from NODE, nodes that came to their end before that point are not performed \
again: they keep what they produced.

A node with delivery: at_most_once that was interrupted ended UNKNOWN, and so did what it belongs to: find out whether \
it took effect, \
and say so with --resolve.

Examples:
  forebay rerun @latest:order --watch
  forebay rerun @latest:order --from failed
  forebay rerun @latest:order --from charge -i card=4242
  forebay rerun @latest:order --from failed --resolve charge=done
  forebay rerun 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --published -i total=20")]
pub(crate) struct Rerun {
    #[arg(value_name = "EXECUTION", help = which::HELP)]
    execution: Which,
    /// Another input: JSON, @FILE (YAML or JSON), or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<String>,
    /// One field of the input, put over the old one's or --input
    #[arg(short = 'i', long = "set", value_name = "KEY=VALUE", value_parser = input::read_setting)]
    settings: Vec<Setting>,
    /// Where to begin: start, failed (what failed and what follows from it), or a node by its key
    #[arg(long, value_name = "start|failed|NODE", default_value = "start")]
    from: String,
    /// The version that is published now, instead of the one that ran
    #[arg(long)]
    published: bool,
    /// Whether a node that ended UNKNOWN took effect: done (it counts as completed) or repeat
    #[arg(long, value_name = "NODE=done|repeat", value_parser = read_resolve)]
    resolve: Vec<(String, wire::RerunResolve)>,
    /// The same key runs it again only once
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    follow: Follow,
    #[command(flatten)]
    place: Place,
}

impl Act for Rerun {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let given = self.input.as_deref().map(input::read).transpose()?;
        let id = self.execution.find(session, &self.place).await?;
        let ground = match given {
            None if !self.settings.is_empty() => old_input(session, &path(id)).await?,
            given => given,
        };
        let version = if self.published { wire::RerunVersion::Latest } else { wire::RerunVersion::Same };
        let (from, node) = match self.from.as_str() {
            "start" => (wire::RerunFrom::Start, None),
            "failed" => (wire::RerunFrom::Failed, None),
            node => (wire::RerunFrom::Node, Some(node.to_owned())),
        };
        let body = wire::Rerun {
            from,
            node,
            input: input::overlay(ground, &self.settings)?,
            version,
            resolve: self.resolve.into_iter().collect(),
        };
        let key = self.idempotency_key.unwrap_or_else(|| Uuid::new_v4().to_string());
        let started: Answer<wire::Started> = session
            .api
            .post_once(&format!("{}/rerun", path(id)), &body, &key)
            .await
            .with_context(|| format!("run {id} again"))?;
        self.follow.started(session, &started).await
    }
}

fn read_resolve(text: &str) -> Result<(String, wire::RerunResolve), String> {
    let (node, word) = text.split_once('=').ok_or("write NODE=done or NODE=repeat")?;
    let resolve = match word {
        "done" => wire::RerunResolve::Done,
        "repeat" => wire::RerunResolve::Repeat,
        _ => return Err("after = write done or repeat".to_owned()),
    };
    Ok((node.to_owned(), resolve))
}

async fn old_input(session: &Session, path: &str) -> anyhow::Result<Option<Value>> {
    let old: Answer<wire::Execution> = session.api.get(path, &[]).await?;
    Ok(old.value.input.filter(|input| !input.is_null()))
}
