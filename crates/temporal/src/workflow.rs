//! The only Temporal workflow: it drives `kernel::orchestration`, and its activities carry out the effects.
//!
//!     begin, compute ──▶ effects ──settle, compute──▶ one local activity, one commit
//!                           ▲                                                       │
//!                           └──apply── events ◀── calls, timers, waits, children ◀──┘
//!
//! Invariants
//! - The workflow decides nothing: it receives events, asks the kernel, and starts activities. It has no clock and no
//!   IO.
//! - Continue-as-new passes on only the workflow's input. The next history reads the run's state from the rows.
//! - The execution is completed exactly once, when no work of the run is in flight: by the activity that stores the
//!   last node, or by one of its own.
//!
//! Not here: what activities do (`activities`), whether and when a node is tried again
//! (`activities::attempt_end`, by the kernel's rules).

mod begin;
mod children;
mod drive;
mod events;
mod options;
mod waits;

use kernel::execution::Status;
use kernel::ids::ProcessId;
use kernel::run::Outcome;
use temporalio_common::error::ApplicationFailure;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::{ContinueAsNewOptions, SyncWorkflowContext, WorkflowContext, WorkflowResult, WorkflowTermination};

use crate::activities::RunActivities;
use crate::message::{BeginRequest, BeginResult, CompleteRequest, CompletedRun, Input, NodeResult, Output};
use drive::{DriveEnd, WorkflowDriver};
use options::recorded;

#[workflow]
#[derive(Default)]
pub(crate) struct WorkflowOrchestration {
    /// How many signals arrived that announce an answer.
    answered: u64,
}

#[workflow_methods]
impl WorkflowOrchestration {
    #[run(name = "WorkflowOrchestration")]
    pub(crate) async fn run(context: &mut WorkflowContext<Self>, input: Input) -> WorkflowResult<Output> {
        let execution = input.execution_id;
        // The owner is the id of the first run in the chain, because continue-as-new changes the run id.
        let owner = context.info().first_execution_run_id().parse().map(ProcessId);
        let owner = owner.map_err(|error| fault(format!("the workflow's run id is not a UUID: {error}")))?;
        let begun =
            context.execute_local_activity(RunActivities::begin, BeginRequest { execution, owner }, recorded()).await?;
        let state = match begun {
            BeginResult::Granted(state) => state,
            BeginResult::Completed { completed, node_results } => {
                let output = Output { execution_id: execution, status: Status::Completed, node_results };
                return workflow_result(&Outcome::Completed, Some(completed), output);
            }
            BeginResult::Over => return Err(WorkflowTermination::cancelled()),
        };
        let context = &*context;
        let mut driver = WorkflowDriver::new(context, owner, *state, &input).map_err(fault)?;
        let hold = driver.hold;
        match driver.drive().await? {
            DriveEnd::Over(outcome) => {
                let completed = match driver.completed {
                    Some(completed) => Some(completed),
                    None => {
                        let complete = CompleteRequest { hold, outcome: outcome.clone() };
                        context.execute_local_activity(RunActivities::complete, complete, recorded()).await?
                    }
                };
                let results = driver.ends().map(|(node, status)| NodeResult { node, status }).collect();
                workflow_result(
                    &outcome,
                    completed,
                    Output { execution_id: execution, status: Status::Completed, node_results: results },
                )
            }
            DriveEnd::Lost => {
                context.execute_local_activity(RunActivities::end_if_terminated, hold, recorded()).await?;
                Err(WorkflowTermination::cancelled())
            }
            DriveEnd::Continues => match context.continue_as_new(input, ContinueAsNewOptions::default())? {},
        }
    }

    /// Only a hint: the workflow reads the answer from the rows.
    #[signal(name = "answered")]
    pub(crate) fn answered(&mut self, _context: &mut SyncWorkflowContext<Self>) {
        self.answered += 1;
    }
}

/// The workflow's own result, as Temporal shows it. It matches the outcome of the execution.
fn workflow_result(outcome: &Outcome, completed: Option<CompletedRun>, output: Output) -> WorkflowResult<Output> {
    let Some(CompletedRun { status, class }) = completed else { return Err(WorkflowTermination::cancelled()) };
    match status {
        Status::Completed => Ok(Output { status, ..output }),
        Status::Canceled => Err(WorkflowTermination::cancelled()),
        _ => {
            let class = class.map_or("UNKNOWN", kernel::run::failure::Class::name);
            let reason = anyhow::anyhow!("the execution ended {}: {class} ({outcome:?})", status.name());
            let failure = ApplicationFailure::builder(reason).type_name(class.to_owned()).non_retryable(true);
            Err(failure.details(Output { status, ..output }).build().into())
        }
    }
}

fn fault(reason: String) -> WorkflowTermination {
    let failure = ApplicationFailure::builder(anyhow::anyhow!(reason)).type_name("FAULT".to_owned());
    failure.non_retryable(true).build().into()
}
