//! `eval`: what an expression comes to, on an execution or on an input given here.
//!
//! Not here: the language (`kernel::expression`).

use server::wire::{Evaluate, Evaluated};

use super::Act;
use super::api::Answer;
use super::connection::{Place, Session};
use super::input::{self, Setting};
use super::which::Which;
use crate::exit::Exit;
use crate::output;

/// Try an expression on what an execution took and made, or on an input
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An expression is what stands between ${{ and }} in a workflow, and in its conditions; text with ${{ }} in it is taken \
too.

Examples:
  forebay eval 'nodes.fetch.output.status == 200' --execution @latest
  forebay eval 'total: ${{ inputs.total * 2 }}' -i total=21")]
pub(crate) struct Eval {
    #[arg(value_name = "EXPRESSION", allow_hyphen_values = true)]
    expression: String,
    /// The execution to look at: its id, @latest, or @latest:WORKFLOW
    #[arg(short, long, value_name = "EXECUTION")]
    execution: Option<Which>,
    /// An input: JSON, @FILE (YAML or JSON), or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<String>,
    /// One field of the input, put over --input
    #[arg(short = 'i', long = "set", value_name = "KEY=VALUE", value_parser = input::read_setting)]
    settings: Vec<Setting>,
    #[command(flatten)]
    place: Place,
}

impl Act for Eval {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let execution_id = match &self.execution {
            Some(which) => Some(which.find(session, &self.place).await?),
            None => None,
        };
        let input = input::assemble(self.input.as_deref(), &self.settings)?;
        let body = Evaluate { expression: self.expression, execution_id, input };
        let answer: Answer<Evaluated> = session.api.post("workflow/expressions/evaluate", &body).await?;
        session.show(&answer, |answer| output::value(&answer.value))?;
        Ok(Exit::Done)
    }
}
