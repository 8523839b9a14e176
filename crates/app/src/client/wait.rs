//! Waits: what an execution waits for, answers, and addresses for those who have no key.

use kernel::ids::NodeKey;
use server::wire;

use super::api::Answer;
use super::connection::{Place, Session};
use super::input::{self, Setting};
use super::page::Paging;
use super::which::{self, Which};
use super::{Act, execution};
use crate::exit::{Exit, usage};
use crate::output::{self, Cell};

/// List what an execution and those below it wait for, or waited for
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A node of kind WAIT_FOR_EVENT waits for a person, a program or a domain event. `forebay answer` answers what is OPEN; \
an answer that comes \
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
What an answer must bring is the `data` of the node: `forebay waits EXECUTION -o json` shows it. One answer a wait: \
the second is refused. \
With --token nothing is answered: the address that is printed answers once, without a key.

Examples:
  forebay answer @latest:order approve approved=true
  forebay answer 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a approve --data '{\"approved\": true, \"note\": \"fine\"}'
  forebay answer @latest:orders 'each[3]' approved=false
  forebay answer @latest:order approve --token --expires-in 2d")]
pub(crate) struct AnswerWait {
    #[arg(value_name = "EXECUTION", help = which::HELP)]
    execution: Which,
    /// The node; 'each[3]' for the third item of a loop
    #[arg(value_name = "NODE", value_parser = read_node)]
    node: (NodeKey, Option<i32>),
    /// Fields of the data; outer.inner=value for one inside another
    #[arg(value_name = "KEY=VALUE", value_parser = input::read_setting)]
    settings: Vec<Setting>,
    /// The data: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Which item of a loop, from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    iteration: Option<i32>,
    /// Print an address that answers it once, for somebody without a key
    #[arg(long, conflicts_with_all = ["settings", "data"])]
    token: bool,
    /// How long that address is good, such as 2d
    #[arg(long, value_name = "DURATION", requires = "token")]
    expires_in: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// A node, and the item of a loop where one is named.
fn read_node(text: &str) -> Result<(NodeKey, Option<i32>), String> {
    let (key, item) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
        None => (text, None),
        Some((key, item)) => {
            let item = item.parse().ok().filter(|item: &i32| *item > 0);
            (key, Some(item.ok_or("an item is a number from 1, as in each[3]")?))
        }
    };
    Ok((NodeKey::new(key).map_err(|bad| bad.to_string())?, item))
}

impl Act for Waits {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.place).await?;
        let listed = self.paging.fetch(session, &format!("{}/waits", execution::path(id)), &[]).await?;
        listed.show(session, &["NODE", "STATUS", "WAITS FOR", "SINCE", "UNTIL", "ANSWERED BY", "EXECUTION"], row)?;
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
        Cell::new(wait.execution_id),
    ]
}

impl Act for AnswerWait {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let (node, item) = &self.node;
        let iteration = match (*item, self.iteration) {
            (Some(item), Some(other)) if item != other => {
                return Err(usage(format!("{node}[{item}] and --iteration {other} are two items: name one")));
            }
            (item, other) => item.or(other),
        };
        let ground = self.data.as_deref().map(|data| input::read_of("--data", data)).transpose()?;
        let data = input::overlay(ground, &self.settings)?;
        let id = self.execution.find(session, &self.place).await?;
        let path = format!("{}/answers/{node}", execution::path(id));
        if self.token {
            let body = wire::MintToken { iteration, expires_in: self.expires_in };
            return mint(session, &path, &body).await;
        }
        let body = wire::AnswerWait { data, iteration };
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

/// Prints an address that answers a wait: the public one, or where this command found the service.
async fn mint(session: &Session, path: &str, body: &wire::MintToken) -> anyhow::Result<Exit> {
    let minted: Answer<wire::MintedToken> = session.api.post(&format!("{path}/token"), body).await?;
    session.show(&minted, |minted| match &minted.url {
        Some(url) => output::line(output::clean(url)),
        None => output::line(output::clean(&format!("{}{}", session.api.server().trim_end_matches('/'), minted.path))),
    })?;
    session.tell(format!("it answers once, until {}", output::time(minted.value.expires_at)))?;
    Ok(Exit::Done)
}
