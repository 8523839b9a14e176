//! `activity`: the audit log.

use jiff::Timestamp;
use server::wire;
use uuid::Uuid;

use super::connection::Session;
use super::page::ListArgs;
use super::{Execute, input};
use crate::exit::Exit;
use crate::output::{self, Cell};

/// List the audit log, newest first: who did what, and to what
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay activity --since 1h
  forebay activity --subject 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --all
  forebay activity --actor key:019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --workspace acme")]
pub(crate) struct ListActivityArgs {
    /// Only entries about this execution, workflow, workspace or key
    #[arg(long, value_name = "ID", value_parser = read_subject)]
    subject: Option<Uuid>,
    /// Only entries by this actor, as the column ACTOR shows it: key:ID, root (the root key that the server was started
    /// with) or sql:ROLE
    #[arg(long, value_name = "ACTOR")]
    actor: Option<String>,
    /// Only entries at this time or later: 2030-01-31T09:00:00Z, or how long ago, such as 24h
    #[arg(long, value_name = "TIME", value_parser = input::read_past)]
    since: Option<Timestamp>,
    /// Only entries before this time, written like --since
    #[arg(long, value_name = "TIME", value_parser = input::read_past)]
    until: Option<Timestamp>,
    #[command(flatten)]
    selection: ListArgs,
}

fn read_subject(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| "write an id, such as 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a".to_owned())
}

impl Execute for ListActivityArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let given = [
            ("subject", self.subject.map(|id| id.to_string())),
            ("actor", self.actor),
            ("after", self.since.map(|at| at.to_string())),
            ("before", self.until.map(|at| at.to_string())),
        ];
        let listed = self.selection.fetch(session, "activity", &given).await?;
        listed.show(session, &["AT", "ACTOR", "ACTION", "SUBJECT", "ID", "DETAIL"], row)?;
        Ok(Exit::Done)
    }
}

fn row(entry: &wire::ActivityEntry) -> Vec<Cell> {
    vec![
        Cell::new(output::format_time(entry.at)),
        Cell::new(&entry.actor),
        Cell::new(&entry.action),
        Cell::new(&entry.subject_type),
        Cell::new(entry.subject_id),
        Cell::new(
            entry.detail.as_ref().filter(|detail| !detail.is_null()).map(ToString::to_string).unwrap_or_default(),
        ),
    ]
}
