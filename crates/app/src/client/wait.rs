//! Waits: list what an execution waits for, answer it, and create addresses that answer without a key.

use kernel::ids::NodeKey;
use server::wire;

use super::api::Answer;
use super::connection::{Session, WorkspaceArg};
use super::execution_ref::{self, ExecutionRef};
use super::input::{self, InputField};
use super::page::PageArgs;
use super::{Connected, Execute, execution};
use crate::exit::{Exit, usage_error};
use crate::output::{self, Cell};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum WaitCommand {
    Ls(Connected<ListWaitsArgs>),
    Answer(Connected<AnswerWaitArgs>),
}

/// List the waits of an execution and of its child executions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A WAIT_FOR_EVENT node waits for a person, a program or a domain event. `forebay wait answer` answers an OPEN wait. An \
answer that arrives before the node starts is stored for it.

Examples:
  forebay wait ls @latest:order
  forebay wait ls 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a -o json")]
pub(crate) struct ListWaitsArgs {
    #[arg(value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: ExecutionRef,
    #[command(flatten)]
    paging: PageArgs,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Answer a wait of an execution, or create an address that answers it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The field `data` of the node says what an answer must contain: `forebay wait ls EXECUTION -o json` shows it. A wait is \
answered once: a second answer is refused. With --token nothing is answered: the printed address answers the wait \
once, without a key.

Examples:
  forebay wait answer @latest:order approve approved=true
  forebay wait answer 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a approve --data '{\"approved\": true, \"note\": \"fine\"}'
  forebay wait answer @latest:orders 'each[3]' approved=false
  forebay wait answer @latest:order approve --token --expires-in 2d")]
pub(crate) struct AnswerWaitArgs {
    #[arg(value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: ExecutionRef,
    /// The key of the node; 'each[3]' is the third item of a loop
    #[arg(value_name = "NODE", value_parser = read_node)]
    node: (NodeKey, Option<i32>),
    /// Fields of the data; outer.inner=value sets a nested field
    #[arg(value_name = "KEY=VALUE", value_parser = input::read_field)]
    fields: Vec<InputField>,
    /// The data of the answer: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// The item of a loop, counted from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    iteration: Option<i32>,
    /// Print an address that answers the wait once, for somebody without a key
    #[arg(long, conflicts_with_all = ["fields", "data"])]
    token: bool,
    /// How long the address is valid, such as 2d
    #[arg(long, value_name = "DURATION", requires = "token", value_parser = input::read_seconds)]
    expires_in: Option<u32>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

commands!(WaitCommand: Ls, Answer);

/// A node, and the item of a loop if one is named.
fn read_node(text: &str) -> Result<(NodeKey, Option<i32>), String> {
    let (key, item) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
        None => (text, None),
        Some((key, item)) => {
            let item = item.parse().ok().filter(|item: &i32| *item > 0);
            (key, Some(item.ok_or("write the item as a number from 1, as in each[3]")?))
        }
    };
    Ok((NodeKey::new(key).map_err(|bad| bad.to_string())?, item))
}

impl Execute for ListWaitsArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.workspace).await?;
        let listed = self.paging.fetch(session, &format!("{}/waits", execution::path(id)), &[]).await?;
        listed.show(session, &["NODE", "STATUS", "WAITS FOR", "OPENED", "EXPIRES", "ANSWERED BY", "EXECUTION"], row)?;
        Ok(Exit::Done)
    }
}

fn row(wait: &wire::Wait) -> Vec<Cell> {
    let name = if wait.iteration > 0 { format!("{}[{}]", wait.node, wait.iteration) } else { wait.node.clone() };
    vec![
        Cell::new(name),
        Cell::status(wait.status.name()),
        Cell::new(
            wait.event_type.as_ref().map_or_else(|| "an answer".to_owned(), |event| format!("the event {event}")),
        ),
        Cell::optional(wait.opened_at.map(output::format_time)),
        Cell::optional(wait.expires_at.map(output::format_time)),
        Cell::optional(wait.answered_by.as_ref()),
        Cell::new(wait.execution_id),
    ]
}

impl Execute for AnswerWaitArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let (node, item) = &self.node;
        let iteration = match (*item, self.iteration) {
            (Some(item), Some(other)) if item != other => {
                return Err(usage_error(format!(
                    "{node}[{item}] and --iteration {other} name different items: give only one"
                )));
            }
            (item, other) => item.or(other),
        };
        let ground = self.data.as_deref().map(|data| input::read_of("--data", data)).transpose()?;
        let data = input::overlay(ground, &self.fields)?;
        let id = self.execution.find(session, &self.workspace).await?;
        let path = format!("{}/waits/{node}", execution::path(id));
        if self.token {
            let expires_in_seconds = self.expires_in.map(u64::from);
            let body = wire::CreateWaitToken { iteration, expires_in_seconds };
            return mint(session, &path, &body).await;
        }
        let body = wire::AnswerWait { data, iteration };
        let answered: Answer<wire::AnsweredWait> = session.api.post(&format!("{path}/answer"), &body).await?;
        session.show(&answered, |answered| {
            let name = output::clean(&answered.node);
            output::print_line(match answered.early {
                true => format!("{name}: answer stored until the node starts"),
                false => format!("{name}: answered"),
            })
        })?;
        Ok(Exit::Done)
    }
}

/// Prints an address that answers a wait: the public one, or one on the server that this command uses.
async fn mint(session: &Session, path: &str, body: &wire::CreateWaitToken) -> anyhow::Result<Exit> {
    let minted: Answer<wire::CreatedWaitToken> = session.api.post(&format!("{path}/token"), body).await?;
    session.show(&minted, |minted| match &minted.url {
        Some(url) => output::print_line(output::clean(url)),
        None => {
            output::print_line(output::clean(&format!("{}{}", session.api.server().trim_end_matches('/'), minted.path)))
        }
    })?;
    session
        .note(format!("the address answers the wait once, until {}", output::format_time(minted.value.expires_at)))?;
    Ok(Exit::Done)
}
