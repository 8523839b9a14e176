//! Waits: what an execution waits for, and answers.

use kernel::ids::NodeKey;
use server::wire;

use super::api::Answer;
use super::connection::{Place, Session};
use super::input::{self, Setting};
use super::page::Paging;
use super::which::{self, Which};
use super::{Act, execution};
use crate::exit::Exit;
use crate::output::{self, Cell};

/// List what an execution waits for, or waited for
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A node of kind WAIT_FOR_EVENT waits for a person, a program or a domain event. `forebay answer` answers what is OPEN; an answer that comes \
before its node has begun is kept for it.

Examples:
  forebay waits @latest:order
  forebay waits 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a -o json")]
pub(crate) struct Waits {
    #[arg(value_name = "EXECUTION", help = which::HELP)]
    execution: Which,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    place: Place,
}

/// Answer what a node of an execution waits for
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What an answer must bring is the `data` of the node: `forebay waits EXECUTION -o json` shows it. One answer a wait: the second is refused.

Examples:
  forebay answer @latest:order approve approved=true
  forebay answer 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a approve --data '{\"approved\": true, \"note\": \"fine\"}'
  forebay answer @latest:orders each --iteration 3 approved=false")]
pub(crate) struct AnswerWait {
    #[arg(value_name = "EXECUTION", help = which::HELP)]
    execution: Which,
    #[arg(value_name = "NODE", value_parser = read_node)]
    node: NodeKey,
    /// Fields of the data; outer.inner=value for one inside another
    #[arg(value_name = "KEY=VALUE", value_parser = input::read_setting)]
    settings: Vec<Setting>,
    /// The data: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Which item of a loop, from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    iteration: Option<i32>,
    #[command(flatten)]
    place: Place,
}

fn read_node(text: &str) -> Result<NodeKey, String> {
    NodeKey::new(text).map_err(|bad| bad.to_string())
}

impl Act for Waits {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.place).await?;
        let listed = self.paging.fetch(session, &format!("{}/waits", execution::path(id)), &[]).await?;
        listed.show(session, &["NODE", "STATUS", "WAITS FOR", "SINCE", "UNTIL", "ANSWERED BY"], row)?;
        Ok(Exit::Done)
    }
}

fn row(wait: &wire::Wait) -> Vec<Cell> {
    let name = if wait.iteration > 0 { format!("{}[{}]", wait.node, wait.iteration) } else { wait.node.clone() };
    vec![
        Cell::new(name),
        Cell::status(wait.status.name()),
        Cell::new(wait.event.as_ref().map_or_else(|| "an answer".to_owned(), |event| format!("the event {event}"))),
        Cell::maybe(wait.opened_at.map(output::time)),
        Cell::maybe(wait.expires_at.map(output::time)),
        Cell::maybe(wait.answered_by.as_ref()),
    ]
}

impl Act for AnswerWait {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let ground = self.data.as_deref().map(|data| input::read_of("--data", data)).transpose()?;
        let data = input::overlay(ground, &self.settings)?;
        let id = self.execution.find(session, &self.place).await?;
        let path = format!("{}/answers/{}", execution::path(id), self.node);
        let body = wire::AnswerWait { data, iteration: self.iteration };
        let answered: Answer<wire::AnsweredWait> = session.api.post(&path, &body).await?;
        session.show(&answered, |answered| {
            let name = output::clean(&answered.node);
            output::line(match answered.early {
                true => format!("{name}: kept until the node begins"),
                false => format!("{name}: answered"),
            })
        })?;
        Ok(Exit::Done)
    }
}
