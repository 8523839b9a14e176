//! The one workflow: `kernel::orchestration`, with activities to carry out what it orders.
//!
//!     begin ──▶ effects ──settle, compute──▶ one local activity, one commit ──▶ calls, waits, asks, children ──▶ news ──▶ apply
//!
//! Invariants
//! - Nothing here decides: it takes news in, asks the kernel, and has its orders carried out. No clock, no IO.
//! - Only ids pass through continue-as-new: the next run begins again, and is rebuilt from rows.
//! - The execution is completed when nothing of the run is in flight, and then exactly once.
//!
//! Not here: what activities do (`activities`), retries (they are the activities' to ask for).

mod asks;
mod begin;
mod children;
mod drive;
mod news;
mod options;

use kernel::execution::Status;
use kernel::ids::ProcessId;
use kernel::run::Outcome;
use temporalio_common::error::ApplicationFailure;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::{ContinueAsNewOptions, SyncWorkflowContext, WorkflowContext, WorkflowResult, WorkflowTermination};

use crate::activities::Kit;
use crate::message::{Begin, Begun, Complete, Completed, Input, NodeResult, Output};
use drive::{Driver, Left};
use options::surely;

#[workflow]
#[derive(Default)]
pub(crate) struct WorkflowOrchestration {
    /// How often it was told that an answer came.
    answered: u64,
}

#[workflow_methods]
impl WorkflowOrchestration {
    #[run(name = "WorkflowOrchestration")]
    pub(crate) async fn run(context: &mut WorkflowContext<Self>, input: Input) -> WorkflowResult<Output> {
        let execution = input.execution_id;
        // The first of a chain of runs names it: continue-as-new changes the run's id, not whose the execution is.
        let owner = context.info().first_execution_run_id().parse().map(ProcessId);
        let owner = owner.map_err(|error| fault(format!("the id of a run cannot be read: {error}")))?;
        let begun = context.execute_local_activity(Kit::begin, Begin { execution, owner }, surely()).await?;
        let granted = match begun {
            Begun::Granted(granted) => granted,
            Begun::Over => return Err(WorkflowTermination::cancelled()),
        };
        let context = &*context;
        let mut driver = Driver::new(context, owner, *granted, &input).map_err(fault)?;
        let hold = driver.hold();
        match driver.drive().await? {
            Left::Over(outcome) => {
                let complete = Complete { hold, outcome: outcome.clone() };
                let completed = context.execute_local_activity(Kit::complete, complete, surely()).await?;
                let results = driver.ends().map(|(node, status)| NodeResult { node, status }).collect();
                told(
                    &outcome,
                    completed,
                    Output { execution_id: execution, status: Status::Completed, node_results: results },
                )
            }
            Left::Lost => {
                context.execute_local_activity(Kit::give_way, hold, surely()).await?;
                Err(WorkflowTermination::cancelled())
            }
            Left::Continues => match context.continue_as_new(input, ContinueAsNewOptions::default())? {},
        }
    }

    /// A hint: what came is in its row.
    #[signal(name = "answered")]
    pub(crate) fn answered(&mut self, _context: &mut SyncWorkflowContext<Self>) {
        self.answered += 1;
    }
}

/// How the workflow itself ends, for those who look at it in Temporal: as its execution did.
fn told(outcome: &Outcome, completed: Option<Completed>, output: Output) -> WorkflowResult<Output> {
    let Some(Completed { status, class }) = completed else { return Err(WorkflowTermination::cancelled()) };
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
