//! The audit log: who did what to what, when.

use jiff::Timestamp;
use server::wire;
use uuid::Uuid;

use super::connection::Session;
use super::page::Selection;
use super::{Act, input};
use crate::exit::Exit;
use crate::output::{self, Cell};

/// List what was done, by whom and to what, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay activity --since 1h
  forebay activity --subject 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --all
  forebay activity --actor key:019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --workspace acme")]
pub(crate) struct List {
    /// Only what was done to this: the id of an execution, a workflow, a workspace or a key
    #[arg(long, value_name = "ID", value_parser = read_subject)]
    subject: Option<Uuid>,
    /// Only what this one did, as the list's WHO names it: key:ID (the key of `dev` is one too), root (a key given to
    /// the server at its start), sql:ROLE
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// At this time or later: 2030-01-31T09:00:00Z, or how long ago, such as 24h
    #[arg(long, value_name = "TIME", value_parser = input::read_past)]
    since: Option<Timestamp>,
    /// Before this time, written like --since
    #[arg(long, value_name = "TIME", value_parser = input::read_past)]
    until: Option<Timestamp>,
    #[command(flatten)]
    selection: Selection,
}

fn read_subject(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| "write an id, such as 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a".to_owned())
}

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let given = [
            ("subject", self.subject.map(|id| id.to_string())),
            ("actor", self.actor),
            ("after", self.since.map(|at| at.to_string())),
            ("before", self.until.map(|at| at.to_string())),
        ];
        let listed = self.selection.fetch(session, "activity", &given).await?;
        listed.show(session, &["AT", "WHO", "DID", "TO", "ID", "DETAIL"], row)?;
        Ok(Exit::Done)
    }
}

fn row(entry: &wire::Activity) -> Vec<Cell> {
    vec![
        Cell::new(output::time(entry.at)),
        Cell::new(&entry.actor),
        Cell::new(&entry.action),
        Cell::new(&entry.subject_type),
        Cell::new(entry.subject_id),
        Cell::new(
            entry.detail.as_ref().filter(|detail| !detail.is_null()).map(ToString::to_string).unwrap_or_default(),
        ),
    ]
}
