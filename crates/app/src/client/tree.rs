//! `tree`: an execution and those that its nodes made, drawn as a tree.
//!
//! Invariants
//! - A child stands below its parent, children by node, item and attempt, in whatever order they were made.

use std::collections::BTreeMap;

use kernel::ids::ExecutionId;
use server::wire::{self, TreeItem};

use super::Act;
use super::api::Answer;
use super::connection::{Place, Session};
use super::execution::path;
use super::which::{self, Which};
use crate::exit::Exit;
use crate::output::{self, clean, tone, took};

/// Show an execution with its children, and theirs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Whichever execution of a tree is named, all of it is shown, and the one that was named is marked with *. Behind the \
node that made a child stands [n] where it is the n-th item of a loop, and the attempt where it is not the first.

Examples:
  forebay tree @latest:onboard-customer
  forebay tree 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a -o json")]
pub(crate) struct Tree {
    #[arg(value_name = "EXECUTION", help = which::HELP)]
    execution: Which,
    #[command(flatten)]
    place: Place,
}

impl Act for Tree {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.place).await?;
        let tree: Answer<wire::Tree> = session.api.get(&format!("{}/tree", path(id)), &[]).await?;
        session.show(&tree, |tree| lines(tree, id, session).iter().try_for_each(output::line))?;
        if tree.value.more {
            session.tell("there are more than are shown")?;
        }
        Ok(Exit::Done)
    }
}

fn lines(tree: &wire::Tree, named: ExecutionId, session: &Session) -> Vec<String> {
    let mut below: BTreeMap<ExecutionId, Vec<&TreeItem>> = BTreeMap::new();
    for item in &tree.items {
        if let Some(parent) = item.parent_execution_id {
            below.entry(parent).or_default().push(item);
        }
    }
    for children in below.values_mut() {
        children.sort_by_key(|child| (child.node.as_deref(), child.iteration, child.attempt));
    }
    let mut lines = Vec::new();
    // The last first, so that what is taken next is what comes next.
    let mut open: Vec<(&TreeItem, String, String)> = Vec::new();
    open.extend(
        tree.items
            .iter()
            .filter(|item| item.parent_execution_id.is_none())
            .map(|item| (item, String::new(), String::new())),
    );
    while let Some((item, branch, indent)) = open.pop() {
        lines.push(format!("{branch}{}", told(item, named, session)));
        let children = below.remove(&item.execution_id).unwrap_or_default();
        let last = children.len().saturating_sub(1);
        for (at, child) in children.into_iter().enumerate().rev() {
            let (turn, rest) = if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            open.push((child, format!("{indent}{turn}"), format!("{indent}{rest}")));
        }
    }
    lines
}

fn told(item: &TreeItem, named: ExecutionId, session: &Session) -> String {
    let status = session.stdout.paint(tone(item.status.name()), item.status.name());
    let node = item.node.as_deref().map(clean).unwrap_or_default();
    let iteration = item.iteration.filter(|iteration| *iteration > 0).map(|iteration| format!("[{iteration}]"));
    let attempt = item.attempt.filter(|attempt| *attempt > 1).map(|attempt| format!(" attempt {attempt}"));
    let made = [node, iteration.unwrap_or_default(), attempt.unwrap_or_default()].concat();
    let made = if made.is_empty() { made } else { format!("{made}: ") };
    let name = item.workflow_name.as_deref().map(clean).unwrap_or_default();
    let lasted = item.duration_ms.map(|ms| format!("  {}", took(ms))).unwrap_or_default();
    let why = item.error.as_ref().and_then(|error| error["message"].as_str()).map(|why| format!("  {}", clean(why)));
    let mark = if item.execution_id == named { " *" } else { "" };
    format!("{made}{name}  {status}{lasted}  {}{mark}{}", item.execution_id, why.unwrap_or_default())
}
