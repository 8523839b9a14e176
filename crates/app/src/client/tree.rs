//! `tree`: an execution and its child executions, drawn as a tree.
//!
//! Invariants
//! - A child is drawn below its parent. The children of a parent are ordered by node, item and attempt.

use std::collections::BTreeMap;

use kernel::ids::ExecutionId;
use server::wire::{self, TreeExecution};

use super::Execute;
use super::api::Answer;
use super::connection::{Session, WorkspaceArg};
use super::execution::path;
use super::execution_ref::{self, ExecutionRef};
use crate::exit::Exit;
use crate::output::{self, clean, format_duration, tone_of_status};

/// Show the tree of an execution and its child executions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The whole tree is shown, whichever of its executions is given; * marks the given one. Each child is shown with the \
node that started it, with [n] for the n-th item of a loop, and with the attempt if it is not the first.

Examples:
  forebay tree @latest:onboard-customer
  forebay tree 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a -o json")]
pub(crate) struct TreeArgs {
    #[arg(value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: ExecutionRef,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

impl Execute for TreeArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.workspace).await?;
        let tree: Answer<wire::ExecutionTree> = session.api.get(&format!("{}/tree", path(id)), &[]).await?;
        session.show(&tree, |tree| lines(tree, id, session).iter().try_for_each(output::print_line))?;
        if tree.value.more {
            session.note("the tree has more executions than are shown")?;
        }
        Ok(Exit::Done)
    }
}

fn lines(tree: &wire::ExecutionTree, named: ExecutionId, session: &Session) -> Vec<String> {
    let mut below: BTreeMap<ExecutionId, Vec<&TreeExecution>> = BTreeMap::new();
    for item in &tree.items {
        if let Some(parent) = item.parent_execution_id {
            below.entry(parent).or_default().push(item);
        }
    }
    for children in below.values_mut() {
        children.sort_by_key(|child| (child.node.as_deref(), child.iteration, child.attempt));
    }
    let mut lines = Vec::new();
    // `open` is a stack: its last entry is drawn next.
    let mut open: Vec<(&TreeExecution, String, String)> = Vec::new();
    open.extend(
        tree.items
            .iter()
            .filter(|item| item.parent_execution_id.is_none())
            .map(|item| (item, String::new(), String::new())),
    );
    while let Some((item, branch, indent)) = open.pop() {
        lines.push(format!("{branch}{}", describe(item, named, session)));
        let children = below.remove(&item.execution_id).unwrap_or_default();
        let last = children.len().saturating_sub(1);
        for (at, child) in children.into_iter().enumerate().rev() {
            let (turn, rest) = if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            open.push((child, format!("{indent}{turn}"), format!("{indent}{rest}")));
        }
    }
    lines
}

fn describe(item: &TreeExecution, named: ExecutionId, session: &Session) -> String {
    let status = session.stdout.paint(tone_of_status(item.status.name()), item.status.name());
    let node = item.node.as_deref().map(clean).unwrap_or_default();
    let iteration = item.iteration.filter(|iteration| *iteration > 0).map(|iteration| format!("[{iteration}]"));
    let attempt = item.attempt.filter(|attempt| *attempt > 1).map(|attempt| format!(" attempt {attempt}"));
    let made = [node, iteration.unwrap_or_default(), attempt.unwrap_or_default()].concat();
    let made = if made.is_empty() { made } else { format!("{made}: ") };
    let name = item.workflow_name.as_deref().map(clean).unwrap_or_default();
    let lasted = item.duration_ms.map(|ms| format!("  {}", format_duration(ms))).unwrap_or_default();
    let why = item.error.as_ref().and_then(|error| error["message"].as_str()).map(|why| format!("  {}", clean(why)));
    let mark = if item.execution_id == named { " *" } else { "" };
    format!("{made}{name}  {status}{lasted}  {}{mark}{}", item.execution_id, why.unwrap_or_default())
}
