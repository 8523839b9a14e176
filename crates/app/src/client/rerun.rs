//! `rerun`: starts a new execution from an ended one.

use anyhow::Context;
use serde_json::Value;
use server::wire;
use uuid::Uuid;

use super::Execute;
use super::api::Answer;
use super::connection::{Session, WorkspaceArg};
use super::execution::path;
use super::execution_ref::{self, ExecutionRef};
use super::input::{self, InputField};
use super::run::Follow;
use crate::exit::Exit;

/// Start a new execution like an ended one, from the start or from where it failed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The new execution is linked to the old one. It has the same input, except for what --input or -i change, and runs the \
same version, unless --published is given. With --from failed or --from NODE, nodes that ended before that point are \
not performed again: their outputs are kept.

A node with delivery: at_most_once that was interrupted has the status UNKNOWN: find out whether its call took effect, \
and say so with --resolve.

Examples:
  forebay rerun @latest:order --watch
  forebay rerun @latest:order --from failed
  forebay rerun @latest:order --from charge -i card=4242
  forebay rerun @latest:order --from failed --resolve charge=done
  forebay rerun 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --published -i total=20")]
pub(crate) struct RerunArgs {
    #[arg(value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: ExecutionRef,
    /// A different input: JSON, @FILE (YAML or JSON), or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<String>,
    /// One field of the input; overrides the old input or --input
    #[arg(short = 'i', long = "field", value_name = "KEY=VALUE", value_parser = input::read_field)]
    fields: Vec<InputField>,
    /// Where to begin: start, failed (the failed nodes and all that follow), or the key of a node
    #[arg(long, value_name = "start|failed|NODE", default_value = "start")]
    from: String,
    /// Run the published version instead of the version that ran
    #[arg(long)]
    published: bool,
    /// For a node with the status UNKNOWN: done (it counts as completed) or repeat; may be repeated
    #[arg(long, value_name = "NODE=done|repeat", value_parser = read_resolve)]
    resolve: Vec<(String, wire::NodeResolution)>,
    /// An idempotency key: the same key starts only one execution
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    follow: Follow,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

impl Execute for RerunArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let given = self.input.as_deref().map(input::read).transpose()?;
        let id = self.execution.find(session, &self.workspace).await?;
        let ground = match given {
            None if !self.fields.is_empty() => old_input(session, &path(id)).await?,
            given => given,
        };
        let version = if self.published { wire::RerunVersion::Latest } else { wire::RerunVersion::Same };
        let (from, node) = match self.from.as_str() {
            "start" => (wire::RerunFrom::Start, None),
            "failed" => (wire::RerunFrom::Failed, None),
            node => (wire::RerunFrom::Node, Some(node.to_owned())),
        };
        let body = wire::RerunExecution {
            from,
            node,
            input: input::overlay(ground, &self.fields)?,
            version,
            resolve: self.resolve.into_iter().collect(),
        };
        let key = self.idempotency_key.unwrap_or_else(|| Uuid::new_v4().to_string());
        let started: Answer<wire::StartedExecution> = session
            .api
            .post_once(&format!("{}/rerun", path(id)), &body, &key)
            .await
            .map_err(|error| error.explain(|problem| input::how_to_write(&self.fields, problem)))
            .with_context(|| format!("rerun {id}"))?;
        self.follow.started(session, &started).await
    }
}

fn read_resolve(text: &str) -> Result<(String, wire::NodeResolution), String> {
    let (node, word) = text.split_once('=').ok_or("write NODE=done or NODE=repeat")?;
    let resolve = match word {
        "done" => wire::NodeResolution::Done,
        "repeat" => wire::NodeResolution::Repeat,
        _ => return Err("write done or repeat after =".to_owned()),
    };
    Ok((node.to_owned(), resolve))
}

async fn old_input(session: &Session, path: &str) -> anyhow::Result<Option<Value>> {
    let old: Answer<wire::Execution> = session.api.get(path, &[]).await?;
    Ok(old.value.input.filter(|input| !input.is_null()))
}
