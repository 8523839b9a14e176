//! A step: settles nodes that are not performed, then performs nodes that only compute, in one commit. The commit may
//! also end the run.
//!
//! Invariants
//! - Facts are stored in the order of the requested actions, so that nodes settle in the same order as in the embedded
//!   engine.
//! - A node reads what the nodes before it in the step produced.
//! - A node that branches or fails ends the step, because other nodes may have to settle before the next action. The
//!   run ends with the step only if every action was performed.
//! - Repeating a step after a crash is harmless: its results depend on stored values only.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use engine::attempt::{self, EachStored, FactWrite};
use engine::ending;
use engine::nodes::{self, NodeOutput, Work};
use kernel::definition;
use kernel::expression::Scope;
use kernel::ids::NodeKey;
use kernel::run::attempts::{AfterFailure, AttemptRules};
use kernel::run::failure::{Class, Failure};
use kernel::run::item_loop;
use kernel::run::node::Status;
use serde_json::Value;
use store::batch::BatchResult;
use store::run::attempt::Ownership;
use store::run::{End, NodeFact, Record, StoredNode};

use super::completion::add_to_scope;
use super::runs::LoadedRun;
use super::{Activity, RunActivities, settled};
use crate::message::{PerformResult, StepAction, StepRequest, StepResult};

/// The approximate maximum size of one commit, in bytes. The next step performs the remaining actions.
const BYTES: usize = 8 << 20;
/// A step begins no further computation after this time, long before its activity would count as hung.
const LONGEST: Duration = Duration::from_secs(5);

impl RunActivities {
    pub(super) async fn run_step(&self, step: StepRequest) -> Activity<StepResult> {
        let hold = step.hold;
        let Some(run) = self.load_run(hold).await? else { return Ok(StepResult::Lost) };
        let mut scope = self.scope_of(hold, &run, &step.actions).await?;
        let begun = self.begun_rows(hold, &run, &step.actions).await?;
        let began = Instant::now();
        let (mut facts, mut ended, mut bytes, mut whole) = (Vec::new(), Vec::new(), 0, true);
        for action in step.actions {
            match action {
                StepAction::Settle { node, iteration, status } => {
                    let key = &run.version.plan.node(node).key;
                    let begun = begun.iter().find(|(known, row)| *known == iteration && row.node == *key);
                    let fact = settle(key, iteration, status, begun.map(|(_, row)| row));
                    add_to_scope(&mut scope, &run.version, &fact);
                    facts.push(fact);
                }
                StepAction::Compute { node, iteration } => {
                    let Some(spec) = run.spec(node, iteration) else {
                        whole = false;
                        break;
                    };
                    let view = run.version.view(node, &scope);
                    let view = match item_loop::index(iteration) {
                        None => view,
                        Some(index) => Cow::Owned(self.with_item(hold, &run, node, index, view.into_owned()).await?),
                    };
                    let since = Instant::now();
                    let ready = nodes::prepare_on_thread(run.begun.workspace, &spec, &view).await;
                    let (fact, end) = compute(hold, &spec, iteration, since, ready);
                    bytes += fact.as_ref().and_then(|fact| fact.output.as_ref()).map_or(0, nodes::size);
                    whole = matches!(&end, PerformResult::Settled { status: Status::Completed, label: None, .. });
                    fact.iter().for_each(|fact| add_to_scope(&mut scope, &run.version, fact));
                    facts.extend(fact);
                    ended.push(end);
                    if !whole || bytes > BYTES || began.elapsed() > LONGEST {
                        whole = false;
                        break;
                    }
                }
            }
        }
        let end = match step.outcome.filter(|_| whole) {
            Some(outcome) => Some(self.build_end(hold, (&run.begun, &run.version), &outcome, scope, &facts).await?),
            None => None,
        };
        self.store_facts(hold, facts, ended, end).await
    }

    /// The scope of the nodes to compute, without what the step itself adds to it.
    async fn scope_of(&self, hold: Ownership, run: &LoadedRun, actions: &[StepAction]) -> Activity<Scope> {
        let (mut read_nodes, mut own) = (BTreeSet::new(), BTreeSet::new());
        for action in actions {
            let (StepAction::Compute { node, iteration } | StepAction::Settle { node, iteration, .. }) = action;
            if matches!(action, StepAction::Compute { .. }) {
                read_nodes.append(&mut run.version.read_by(*node));
            }
            own.extend((*iteration == 0).then(|| &run.version.plan.node(*node).key));
        }
        read_nodes.retain(|node| !own.contains(node));
        let mut scope = engine::scope::scope(&run.begun, &run.version);
        let stored: Vec<NodeKey> = read_nodes.into_iter().collect();
        self.load_outputs(hold, &stored, &mut scope).await?;
        Ok(scope)
    }

    /// The rows of begun nodes that are to be settled. They keep their attempt number and the failure of the last
    /// attempt.
    async fn begun_rows(
        &self,
        hold: Ownership,
        run: &LoadedRun,
        actions: &[StepAction],
    ) -> Activity<Vec<(i32, StoredNode)>> {
        let begun = actions.iter().filter_map(|action| match action {
            StepAction::Settle { node, iteration, status } if *status != Status::Skipped => {
                Some((&run.version.plan.node(*node).key, *iteration))
            }
            _ => None,
        });
        let begun: Vec<(&NodeKey, i32)> = begun.collect();
        if begun.is_empty() {
            return Ok(Vec::new());
        }
        self.store.nodes_at(hold.execution, &begun).await.map_err(super::repeat_on)
    }

    /// Stores the facts of a step, and the end of the run if it ends.
    async fn store_facts(
        &self,
        hold: Ownership,
        facts: Vec<NodeFact>,
        ended: Vec<PerformResult>,
        end: Option<End>,
    ) -> Activity<StepResult> {
        if facts.is_empty() {
            return Ok(StepResult::Done(ended));
        }
        let record = Record { end: end.clone(), ..record_of(hold, facts.clone()) };
        match (self.record(hold.owner, record).await?, end) {
            (BatchResult::Done(recorded), _) if !recorded.held => Ok(StepResult::Lost),
            (BatchResult::Done(_), None) => Ok(StepResult::Done(ended)),
            (BatchResult::Done(recorded), Some(end)) => {
                Ok(StepResult::Completed { ended, completed: self.announce_end(hold, &end, recorded.freed) })
            }
            // The outputs of the workflow may be the reason. Another activity records the end.
            (BatchResult::Refused(_), Some(_)) => Box::pin(self.store_facts(hold, facts, ended, None)).await,
            (BatchResult::Refused(error), None) => {
                tracing::warn!(execution_id = %hold.execution, error = %error, "Node result cannot be stored");
                self.store_refused(hold, facts, ended).await
            }
        }
    }

    /// Stores facts that the database refused together. The first that it refuses again fails its node and ends the
    /// step.
    async fn store_refused(
        &self,
        hold: Ownership,
        facts: Vec<NodeFact>,
        mut ended: Vec<PerformResult>,
    ) -> Activity<StepResult> {
        // The computed nodes are last. The last of them may have no fact.
        let computed = ended.iter().filter(|end| !matches!(end, PerformResult::PerformAlone)).count();
        let settled_first = facts.len().saturating_sub(computed);
        let each = attempt::store_each(facts, |fact| async {
            Activity::Ok(match self.record(hold.owner, record_of(hold, vec![fact])).await? {
                BatchResult::Done(recorded) if recorded.held => FactWrite::Stored,
                BatchResult::Done(_) => FactWrite::Lost,
                BatchResult::Refused(_) => FactWrite::Refused,
            })
        });
        match each.await? {
            EachStored::All => {}
            EachStored::FailedAt(at) if at >= settled_first => {
                ended.truncate(at - settled_first);
                ended.push(settled(Status::Failed, None, Some(Class::UnstorableOutput)));
            }
            EachStored::Lost => return Ok(StepResult::Lost),
            EachStored::FailedAt(_) | EachStored::Nothing => {
                self.end(hold, ending::unstorable()).await?;
                return Ok(StepResult::Lost);
            }
        }
        Ok(StepResult::Done(ended))
    }
}

/// The result of computing a node or a loop's item. There is no fact if a step cannot perform the node.
fn compute(
    hold: Ownership,
    spec: &definition::Node,
    iteration: i32,
    since: Instant,
    ready: Result<(Value, Work), Failure>,
) -> (Option<NodeFact>, PerformResult) {
    let result = match ready {
        Ok((_, Work::Done(done))) => attempt::check_output(Ok(done)),
        Ok((_, Work::Skip)) => {
            let fact = settle(&spec.key, iteration, Status::Skipped, None);
            return (Some(fact), settled(Status::Skipped, None, None));
        }
        Ok(_) => return (None, PerformResult::PerformAlone),
        Err(failure) => Err(failure),
    };
    let outcome = if result.is_ok() { "completed" } else { "failed" };
    attempt::measure(spec.kind, outcome, since.elapsed());
    let fact = |status| attempt::fact(&spec.key, iteration, status, 1);
    match result {
        Ok(NodeOutput { output, label, .. }) => {
            let fact = NodeFact { label: label.clone(), output: Some(output), ..fact(Status::Completed) };
            (Some(fact), settled(Status::Completed, label, None))
        }
        Err(failure) => match AttemptRules::new(hold.execution, spec, iteration).after_failure(&failure, 1) {
            AfterFailure::Retry { .. } => (None, PerformResult::PerformAlone),
            AfterFailure::Settle(end) => {
                let class = failure.class;
                let fact = NodeFact { error: Some(failure.at(spec.key.clone())), ..fact(end.status()) };
                (Some(fact), settled(end.status(), None, Some(class)))
            }
        },
    }
}

/// The fact for a node that is settled without being performed. A delay that is over has its usual output. A failed
/// node that is not retried keeps its failure. Any other failure here means that Temporal could not run the activity.
fn settle(node: &NodeKey, iteration: i32, status: Status, begun: Option<&StoredNode>) -> NodeFact {
    let unperformed = || Failure::new(Class::ExecutionError, "Temporal could not run the activity").at(node.clone());
    let known = || begun.and_then(|row| row.error.clone());
    // An attempt that had not begun does not count.
    let is_retrying = begun.is_some_and(|row| row.status == Status::Retrying && status == Status::Failed);
    let attempt = begun.map_or(0, |row| row.attempt).saturating_sub(u32::from(is_retrying));
    let error = match status {
        Status::Failed => Some(known().unwrap_or_else(unperformed)),
        // The node is a loop, and one of its items ended as UNKNOWN.
        Status::Unknown => Some(Failure::unknown().at(node.clone())),
        _ => None,
    };
    let output = (status == Status::Completed).then(|| NodeOutput::of_wait().output);
    NodeFact { output, error, ..attempt::fact(node, iteration, status, attempt) }
}

fn record_of(hold: Ownership, facts: Vec<NodeFact>) -> Record {
    Record { facts, ..Record::new(hold.execution, hold) }
}
