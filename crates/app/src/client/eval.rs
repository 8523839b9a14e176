//! `eval`: evaluates an expression on an execution, or on a given input.
//!
//! Not here: the language (`kernel::expression`).

use server::wire::{EvaluateExpression, ExpressionValue};

use super::Execute;
use super::api::Answer;
use super::connection::{Session, WorkspaceArg};
use super::execution_ref::ExecutionRef;
use super::input::{self, InputField};
use crate::exit::Exit;
use crate::output;

/// Evaluate an expression on the input and outputs of an execution, or on an input
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An expression is the text between ${{ and }} in a workflow, or a condition. Text with ${{ }} in it works too.

Examples:
  forebay eval 'nodes.fetch.output.status == 200' --execution @latest
  forebay eval 'total: ${{ inputs.total * 2 }}' -i total=21")]
pub(crate) struct EvalArgs {
    /// The expression
    #[arg(value_name = "EXPRESSION", allow_hyphen_values = true)]
    expression: String,
    /// The execution whose data is used: its id, @latest, or @latest:WORKFLOW
    #[arg(short, long, value_name = "EXECUTION")]
    execution: Option<ExecutionRef>,
    /// The input: JSON, @FILE (YAML or JSON), or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<String>,
    /// One field of the input; overrides --input
    #[arg(short = 'i', long = "field", value_name = "KEY=VALUE", value_parser = input::read_field)]
    fields: Vec<InputField>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

impl Execute for EvalArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let execution_id = match &self.execution {
            Some(which) => Some(which.find(session, &self.workspace).await?),
            None => None,
        };
        let input = input::assemble(self.input.as_deref(), &self.fields)?;
        let body = EvaluateExpression { expression: self.expression, execution_id, input };
        let answer: Answer<ExpressionValue> = session.api.post("workflow/expressions/evaluate", &body).await?;
        session.show(&answer, |answer| output::print_value(&answer.value))?;
        Ok(Exit::Done)
    }
}
