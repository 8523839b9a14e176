//! What is known about an external engine's runs between passes: which runs make no progress, which the engine no
//! longer has, and what the problem is as a whole.
//!
//! Invariants
//! - A pass forgets the runs of its id range that it did not find, so ended runs do not accumulate here.
//! - For a run that a pass did not describe, the result of its last description stays.
//!
//! Not here: asking the engine (`run::reconcile`), the state of a single run (`http::queue`, which asks the engine
//! itself).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::RunDescription;
use kernel::execution;
use kernel::ids::ExecutionId;
use kernel::queue::explain::RunProblem;
use kernel::run::reconcile::{self, Reconciliation, RemoteState};

/// The most runs that are remembered; `StuckCounts` does not include further runs.
const MAX_RUNS: usize = 10_000;

/// The problems that passes found, for readiness and metrics. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct EngineFindings(Arc<Mutex<FindingsState>>);

#[derive(Debug, Default)]
struct FindingsState {
    problem: Option<String>,
    /// Runs that make no progress.
    stuck: BTreeMap<ExecutionId, StuckReason>,
    /// Runs that somebody ended on the engine or that the engine does not know, and since when this process knows that.
    missing: BTreeMap<ExecutionId, Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StuckReason {
    NotBegun,
    Idle,
    Failing,
}

/// What a pass found out about one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunObservation {
    /// The engine lists the run as open. This pass did not describe the run.
    Listed { begun: bool },
    /// A worker performs the run.
    Progressing,
    /// No worker has picked the run up.
    NotBegun,
    /// The run waits for a worker, and no worker polls.
    Idle,
    /// The workers that perform the run fail.
    Failing,
    /// The run has ended.
    Closed,
    /// The run was ended directly on the engine, for example terminated.
    Broken,
    /// The engine does not know the run.
    Unknown,
}

/// The range of execution ids that a pass covered: greater than `after`, up to and including `to`. `after` is none at
/// the first run, and `to` is none if the pass reached the last run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdRange {
    pub(crate) after: Option<ExecutionId>,
    pub(crate) to: Option<ExecutionId>,
}

impl IdRange {
    fn contains(self, id: ExecutionId) -> bool {
        self.after.is_none_or(|after| id > after) && self.to.is_none_or(|to| id <= to)
    }
}

/// How many runs make no progress, by reason: no worker (`idle`) or failing workers (`failing`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct StuckCounts {
    pub(crate) idle: usize,
    pub(crate) failing: usize,
}

impl StuckCounts {
    /// The problem for readiness, if there is one.
    pub(crate) fn problem(self) -> Option<String> {
        match self {
            StuckCounts { failing: 0, idle: 0 } => None,
            StuckCounts { failing: 0, idle } => Some(format!(
                "no worker has picked up {idle} started executions: check that a worker polls the engine's task queue"
            )),
            StuckCounts { failing, .. } => Some(format!(
                "{failing} runs make no progress, because their workers fail: check that the workers have the same \
                 version and encryption keys as this process"
            )),
        }
    }
}

impl RunObservation {
    /// Derives the observation from the stored status of a run and the engine's description.
    pub(crate) fn from_description(ours: execution::Status, described: &RunDescription) -> RunObservation {
        match described {
            RunDescription::Unknown => RunObservation::Unknown,
            RunDescription::EndedExternally(_) => RunObservation::Broken,
            RunDescription::Closed(_) => RunObservation::Closed,
            RunDescription::Running { stuck: Some(RunProblem::WorkFails(_)) } => RunObservation::Failing,
            RunDescription::Running { stuck: Some(RunProblem::NoWorker(_)) } => RunObservation::Idle,
            RunDescription::Running { stuck: None } => match reconcile::decide(ours, RemoteState::Running) {
                Reconciliation::AwaitBegin => RunObservation::NotBegun,
                _ => RunObservation::Progressing,
            },
        }
    }
}

impl EngineFindings {
    pub(crate) fn problem(&self) -> Option<String> {
        self.with(|state| state.problem.clone())
    }

    pub(crate) fn set(&self, problem: Option<String>) {
        self.with(|state| state.set(problem));
    }

    /// For how long this process has known that the engine no longer has this run; zero if the engine has it.
    pub(super) fn missing_for(&self, execution: ExecutionId) -> Duration {
        self.with(|state| state.missing.get(&execution).map(Instant::elapsed).unwrap_or_default())
    }

    /// Stores the observations of a pass. Returns how many of all known runs make no progress.
    pub(crate) fn record(
        &self,
        range: IdRange,
        observations: impl Iterator<Item = (ExecutionId, RunObservation)>,
    ) -> StuckCounts {
        let observations: BTreeMap<ExecutionId, RunObservation> = observations.collect();
        self.with(|state| {
            state.apply(range, &observations);
            let count = |reason| state.stuck.values().filter(|known| **known == reason).count();
            StuckCounts {
                idle: count(StuckReason::NotBegun) + count(StuckReason::Idle),
                failing: count(StuckReason::Failing),
            }
        })
    }

    fn with<T>(&self, step: impl FnOnce(&mut FindingsState) -> T) -> T {
        step(&mut self.0.lock())
    }
}

impl FindingsState {
    fn set(&mut self, problem: Option<String>) {
        if self.problem != problem
            && let Some(problem) = &problem
        {
            tracing::error!(
                problem,
                "Check of runs on the external engine found a problem or stopped; see the field `problem`"
            );
        }
        self.problem = problem;
    }

    fn apply(&mut self, range: IdRange, observations: &BTreeMap<ExecutionId, RunObservation>) {
        let is_missing = |observation: Option<&RunObservation>| {
            matches!(observation, Some(RunObservation::Broken | RunObservation::Unknown))
        };
        self.missing.retain(|id, _| !range.contains(*id) || is_missing(observations.get(id)));
        self.stuck.retain(|id, _| !range.contains(*id) || observations.contains_key(id));
        for (id, observation) in observations {
            let before = self.stuck.get(id).copied();
            let reason = match observation {
                RunObservation::Listed { begun: true } => before.filter(|reason| *reason != StuckReason::NotBegun),
                RunObservation::Listed { begun: false } => before.or(Some(StuckReason::NotBegun)),
                RunObservation::NotBegun => Some(StuckReason::NotBegun),
                RunObservation::Idle => Some(StuckReason::Idle),
                RunObservation::Failing => Some(StuckReason::Failing),
                RunObservation::Progressing
                | RunObservation::Closed
                | RunObservation::Broken
                | RunObservation::Unknown => None,
            };
            match reason {
                Some(reason) if before.is_some() || self.stuck.len() < MAX_RUNS => drop(self.stuck.insert(*id, reason)),
                Some(_) => {}
                None => drop(self.stuck.remove(id)),
            }
            if is_missing(Some(observation)) && self.missing.len() < MAX_RUNS {
                self.missing.entry(*id).or_insert_with(Instant::now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RunObservation::{Broken, Failing, Idle, Listed, NotBegun, Progressing, Unknown};
    use super::*;

    fn id(n: u128) -> ExecutionId {
        ExecutionId(uuid::Uuid::from_u128(n))
    }

    /// The problem after a pass.
    fn record(
        findings: &EngineFindings,
        range: (Option<u128>, Option<u128>),
        observations: &[(u128, RunObservation)],
    ) -> String {
        let range = IdRange { after: range.0.map(id), to: range.1.map(id) };
        findings
            .record(range, observations.iter().map(|(n, observation)| (id(*n), *observation)))
            .problem()
            .unwrap_or_default()
    }

    fn known(findings: &EngineFindings) -> (Vec<u128>, Vec<u128>) {
        let number = |id: &ExecutionId| id.0.as_u128();
        findings.with(|state| (state.stuck.keys().map(number).collect(), state.missing.keys().map(number).collect()))
    }

    #[test]
    fn a_pass_forgets_runs_it_no_longer_finds_in_its_range_and_leaves_other_ids_alone() {
        let findings = EngineFindings::default();
        record(&findings, (None, Some(9)), &[(1, Broken), (2, Failing), (3, Unknown), (4, Progressing)]);
        record(&findings, (Some(9), None), &[(10, Unknown), (11, Idle), (12, NotBegun)]);
        assert_eq!(known(&findings), (vec![2, 11, 12], vec![1, 3, 10]));
        record(&findings, (None, Some(9)), &[(2, Listed { begun: true }), (3, Unknown)]);
        assert_eq!(known(&findings), (vec![2, 11, 12], vec![3, 10]));
        assert_eq!(record(&findings, (None, None), &[(2, Progressing), (3, Progressing)]), "");
        assert_eq!(known(&findings), (vec![], vec![]));
    }

    #[test]
    fn a_failure_is_reported_before_idleness_and_stays_until_the_run_is_described_again() {
        let findings = EngineFindings::default();
        let problem = record(&findings, (None, None), &[(1, Failing), (2, NotBegun)]);
        assert!(problem.starts_with("1 runs make no progress"), "{problem}");
        let unclear = [(1, Listed { begun: false }), (2, Listed { begun: true })];
        let problem = record(&findings, (None, None), &unclear);
        assert!(problem.starts_with("1 runs make no progress"), "{problem}");
        assert_eq!(known(&findings), (vec![1], vec![]), "one was not described, the other has begun");
        let problem = record(&findings, (None, None), &[(1, Progressing), (2, Idle)]);
        assert!(problem.starts_with("no worker has picked up 1 started"), "{problem}");
    }
}
