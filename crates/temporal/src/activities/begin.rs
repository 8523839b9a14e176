//! Begins a run: asks whether this run may perform nodes, reads its state, and performs its first light nodes.
//!
//! Invariants
//! - A repeat returns the state that the rows have by then.
//! - A run that only computes ends here, and its workflow needs no other activity.
//!
//! What happens if this process dies: a repeat finds the run begun by the same owner, and the nodes that were stored.
//!
//! Not here: which nodes are light (`message`), performing them (`step`), what follows them (`workflow`).

use std::sync::Arc;
use std::time::Duration;

use engine::attempt::child::load_version;
use engine::versions::LoadedVersion;
use engine::{ending, log_event};
use kernel::orchestration::ahead::Ahead;
use kernel::orchestration::{Effect, NodeSnapshot, Orchestration, Target};
use kernel::signals::events;
use store::run::attempt::Ownership;
use store::run::{BeginOutcome, StoredNode};

use super::runs::LoadedRun;
use super::{Activity, RunActivities, SOON, failure_or_repeat, repeat_after, repeat_on, resumed, whole_ms};
use crate::NAME;
use crate::message::{
    BeginRequest, BeginResult, GraphShape, MAX_COMPUTED, NodeResult, PerformResult, RunState, StepAction, StepRequest,
    StepResult,
};

impl RunActivities {
    pub(super) async fn try_begin(&self, BeginRequest { execution, owner }: BeginRequest) -> Activity<BeginResult> {
        let answers =
            self.store.begin_on_engine(&[execution], NAME, Some(&self.location), owner).await.map_err(repeat_on)?;
        match answers.into_iter().next() {
            Some((_, BeginOutcome::Granted(_))) => {}
            Some((_, BeginOutcome::NotYet)) => {
                return Err(repeat_after("NOT_YET", "the queue item holds no slot yet", SOON));
            }
            Some((_, BeginOutcome::Ended)) => return Ok(BeginResult::Over),
            Some((_, BeginOutcome::Missing)) | None => {
                log_event!(events::EXECUTION_GONE, execution_id = %execution, queue_item_id = %execution.queue_item());
                return Ok(BeginResult::Over);
            }
        }
        let reads = tokio::join!(self.store.owned_run(execution, owner), self.store.node_states(execution));
        let (Some(owned), rows) = (reads.0.map_err(repeat_on)?, reads.1.map_err(repeat_on)?) else {
            return Ok(BeginResult::Over);
        };
        let hold = Ownership { execution, owner, epoch: owned.begun.epoch };
        if owned.terminating {
            self.end_terminated(hold).await?;
            return Ok(BeginResult::Over);
        }
        let version = match failure_or_repeat(load_version(&self.store, &self.versions, owned.begun.version).await)? {
            Ok(version) => version,
            Err(failure) => {
                tracing::warn!(execution_id = %execution, reason = failure.message,
                    "Execution failed: its version cannot be run");
                self.end(hold, ending::failed(failure)).await?;
                return Ok(BeginResult::Over);
            }
        };
        let state = self.run_state(hold, &version, rows, (owned.canceling, owned.begun.deadline_in));
        self.runs.insert(hold, LoadedRun::new(owned.begun, version));
        self.compute_first(hold, state).await
    }

    /// The state of the run, as its rows say.
    fn run_state(
        &self,
        hold: Ownership,
        version: &LoadedVersion,
        rows: Vec<StoredNode>,
        (canceling, deadline): (bool, Duration),
    ) -> RunState {
        let begun = rows.into_iter().filter_map(|row| {
            let (node, status) = (version.plan.index_of(&row.node)?, resumed(row.status));
            Some(NodeSnapshot { node, status, label: row.label, attempt: 1 })
        });
        let nodes = begun.collect();
        let shape = GraphShape::new(&version.definition, &version.plan, whole_ms(self.local_below));
        let (deadline_ms, heartbeat_ms) = (whole_ms(deadline), whole_ms(self.heartbeat));
        RunState { epoch: hold.epoch, shape, nodes, deadline_ms, heartbeat_ms, canceling }
    }

    /// Performs the light nodes that are ready, and those that follow them, so that the workflow needs no step for
    /// them.
    async fn compute_first(&self, hold: Ownership, mut state: RunState) -> Activity<BeginResult> {
        let Ahead { nodes, outcome } = first_nodes(hold, &state);
        if nodes.is_empty() {
            return Ok(BeginResult::Granted(Box::new(state)));
        }
        let compute = |at: &Target| StepAction::Compute { node: at.node, iteration: at.iteration };
        let step = StepRequest { hold, actions: nodes.iter().map(compute).collect(), outcome };
        let (ended, completed) = match self.or_fail_run(hold, StepResult::Lost, self.run_step(step)).await? {
            StepResult::Done(ended) => (ended, None),
            StepResult::Completed { ended, completed } => (ended, Some(completed)),
            StepResult::Lost => return Ok(BeginResult::Over),
        };
        state.nodes.extend(nodes.iter().zip(ended).filter_map(|(at, ended)| match ended {
            PerformResult::Settled { status, label, .. } => {
                Some(NodeSnapshot { node: at.node, status, label, attempt: 1 })
            }
            _ => None,
        }));
        let result =
            |row: &NodeSnapshot| NodeResult { node: state.shape.nodes[row.node].key.clone(), status: row.status };
        Ok(match completed {
            Some(completed) => {
                BeginResult::Completed { completed, node_results: state.nodes.iter().map(result).collect() }
            }
            None => BeginResult::Granted(Box::new(state)),
        })
    }
}

/// The light nodes with which a run may begin. None if it has anything else to do first, such as to stop.
fn first_nodes(hold: Ownership, state: &RunState) -> Ahead {
    let Ok(plan) = state.shape.plan() else { return Ahead::default() };
    let (machine, effects) = Orchestration::resume(Arc::new(plan), hold.execution, None, state.nodes.clone());
    let mut ready = Vec::new();
    for effect in effects {
        match effect {
            Effect::Perform { at, .. } => ready.push(at),
            _ => return Ahead::default(),
        }
    }
    let stops = state.canceling || state.deadline_ms == 0;
    machine.ahead(ready, |at| state.shape.node(at).foresight(), if stops { 0 } else { MAX_COMPUTED })
}
