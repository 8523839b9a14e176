//! `diff`: the differences between two versions of a workflow.
//!
//! Not here: what a difference is (`kernel::definition::diff`).

use anyhow::bail;
use kernel::definition::diff::FieldChange;
use serde_json::Value;
use server::wire::VersionDiff;

use super::api::Answer;
use super::connection::{Session, WorkspaceArg};
use super::{Execute, definition};
use crate::exit::Exit;
use crate::output::{self, StreamStyle, clean, tone_of_status};

/// Show the differences between two versions of a workflow
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --from and --to, the published version is compared with the version before it.

Examples:
  forebay diff order --workspace acme
  forebay diff order --from 1 --to 3 -o json")]
pub(crate) struct DiffArgs {
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// The older version's number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    from: Option<i32>,
    /// The newer version's number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    to: Option<i32>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

impl Execute for DiffArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let found = definition::find(session, &self.workflow, &self.workspace).await?;
        let published = found.published_version.unwrap_or(1);
        let to = self.to.unwrap_or(published);
        let from = self.from.unwrap_or(to - 1);
        if from < 1 {
            bail!("{} has no version before version {to}: give --from and --to", found.name);
        }
        let path = format!("workflow/definitions/{}/versions/{from}/diff", found.id);
        let diff: Answer<VersionDiff> = session.api.get(&path, &[("to", &to.to_string())]).await?;
        session.show(&diff, |diff| diff.changes.iter().try_for_each(|change| show(change, session.stdout)))?;
        if diff.value.changes.is_empty() {
            session.note(format!("versions {from} and {to} are the same"))?;
        }
        Ok(Exit::Done)
    }
}

fn show(change: &FieldChange, style: StreamStyle) -> anyhow::Result<()> {
    let pointer = clean(&change.pointer);
    let (sign, status, rest) = match (&change.before, &change.after) {
        (None, after) => ("+", "COMPLETED", shown(after.as_ref())),
        (before, None) => ("-", "FAILED", shown(before.as_ref())),
        (before, after) => ("~", "RETRYING", format!("{} -> {}", shown(before.as_ref()), shown(after.as_ref()))),
    };
    let sign = style.paint(tone_of_status(status), sign);
    // An edge has no value to show.
    match pointer.starts_with("/edges/") {
        true => output::print_line(format!("{sign} {pointer}")),
        false => output::print_line(format!("{sign} {pointer}: {rest}")),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map(|value| clean(&value.to_string())).unwrap_or_default()
}
