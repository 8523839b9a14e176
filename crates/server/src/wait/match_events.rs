//! Answers waits with events. The candidate events of each wait are checked in their order. The first event for which
//! the expression `match` is true becomes the answer. A candidate is a pair of a wait and an event.
//!
//! Invariants
//! - Workspaces take turns, also across processes. A turn checks one page of candidates, or as many as `TURN_TIME`
//!   allows.
//! - The kernel decides whether an event matches (`kernel::kind::wait_for_event`). The condition sees what the node's
//!   own templates see, and the event.
//! - If a condition cannot be evaluated for an event, the event does not match, so that later events can still match.
//! - If the rows that a condition needs cannot be read, the candidates before it still count as checked. After
//!   `MAX_READ_ATTEMPTS` failures the candidate is skipped. A failure counts only if the same statements can read other
//!   rows, because otherwise the database is the cause.
//! - A page counts as checked only after its answers are stored. If a candidate is checked twice, the second answer
//!   changes nothing, because the wait already has an answer.
//!
//! Not here: which events are candidates (`store`'s `functions/wait.sql`, `functions/candidate.sql`).

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::compute;
use engine::versions::{Error, LoadedVersion, VersionCache};
use kernel::expression::{self, Expression, Root, Scope};
use kernel::ids::{ExecutionId, NodeKey, WorkspaceId};
use kernel::kind::wait_for_event;
use kernel::signals::metrics;
use serde_json::{Value, json};
use store::Store;
use store::execution::Execution;
use store::wait::{AnswerOutcome, Candidate, CandidatePage, WaitKey};
use uuid::Uuid;

use crate::run::notify::RunNotifier;

/// The most candidates in one turn of a workspace.
const BATCH: i32 = 200;
/// How long a process has a page for itself. If the process dies, another process checks the candidates that are left
/// after this time.
const LEASE: Duration = Duration::from_secs(15);
/// How long one turn of a workspace lasts at most, far below the lease. Candidates that are left wait for the next
/// turn.
const TURN_TIME: Duration = Duration::from_secs(1);

/// After this many failures to read the rows that a condition needs, the candidate is skipped.
const MAX_READ_ATTEMPTS: u32 = 3;
/// The most candidates whose failures are remembered.
const MAX_FAILURES: usize = 1_000;

/// The service's own share of computing time. If conditions were computed in the share of their workspace, a busy
/// workspace would delay this loop for all other workspaces.
const SERVICE: WorkspaceId = WorkspaceId(Uuid::nil());

pub(crate) struct EventMatcher {
    pub(crate) store: Store,
    pub(crate) run_notifier: RunNotifier,
    pub(crate) versions: VersionCache,
    /// The workspace that had the last turn.
    pub(crate) last_workspace: Mutex<Option<WorkspaceId>>,
    /// How often an event could not be checked for a wait because the wait's rows could not be read.
    pub(crate) failures: Mutex<BTreeMap<(WaitKey, Uuid), u32>>,
}

/// The rows that one turn has read: executions, and for each wait the scope that its templates see.
#[derive(Default)]
struct TurnCache {
    /// True if the executions could not be read together. Then each execution is read when it is needed.
    one_by_one: bool,
    executions: BTreeMap<ExecutionId, Execution>,
    scopes: BTreeMap<WaitKey, Scope>,
    /// Waits that have an answer, or that no longer accept an answer.
    answered: BTreeSet<WaitKey>,
}

impl EventMatcher {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        self.store.recheck_events(BATCH).await?;
        let last_workspace = *self.last_workspace.lock();
        let Some(page) = self.store.claim_candidates(last_workspace, BATCH, LEASE).await? else { return Ok(None) };
        *self.last_workspace.lock() = Some(page.workspace);
        for (event, error) in &page.unreadable {
            tracing::warn!(
                workspace_id = %page.workspace,
                event_id = %event,
                error,
                "Event cannot be read; no wait receives it"
            );
        }
        let mut cache = match self.executions(&page).await {
            Ok(executions) => TurnCache { executions, ..TurnCache::default() },
            // One of the executions may be the cause of the failure, so each is read separately.
            Err(_) => TurnCache { one_by_one: true, ..TurnCache::default() },
        };
        let since = Instant::now();
        for (at, candidate) in page.candidates.iter().enumerate() {
            match self.matches(candidate, &mut cache).await {
                Ok(false) => {}
                Ok(true) => self.answer(candidate, &mut cache).await?,
                Err(error) => return self.unreadable(&page, at, error).await,
            }
            if since.elapsed() >= TURN_TIME && at + 1 < page.candidates.len() {
                self.store.finish_candidates_up_to(page.claim, candidate).await?;
                return Ok(Some(Duration::ZERO));
            }
        }
        self.store.finish_candidates(page.claim).await?;
        Ok(Some(Duration::ZERO))
    }

    /// The executions of waits with a condition.
    async fn executions(&self, page: &CandidatePage) -> Result<BTreeMap<ExecutionId, Execution>, store::Error> {
        let with_condition = page.candidates.iter().filter(|candidate| candidate.matches.is_some());
        let ids: BTreeSet<ExecutionId> = with_condition.map(|candidate| candidate.key.execution).collect();
        let found = self.store.some_executions(&ids.into_iter().collect::<Vec<_>>()).await?;
        Ok(found.into_iter().map(|execution| (execution.id, execution)).collect())
    }

    /// Handles a candidate whose rows could not be read. The candidates before it count as checked; this candidate and
    /// the later ones are checked again. If this candidate failed too often although other rows can be read, it is
    /// skipped.
    async fn unreadable(
        &self,
        page: &CandidatePage,
        at: usize,
        error: store::Error,
    ) -> Result<Option<Duration>, store::Error> {
        let candidate = &page.candidates[at];
        if self.failed_too_often(candidate, &error).await {
            tracing::warn!(
                execution_id = %candidate.key.execution,
                node = %candidate.key.node,
                event_id = %candidate.event.id,
                error = &error as &dyn std::error::Error,
                "Wait cannot be read; it does not receive the event"
            );
            self.store.finish_candidates_up_to(page.claim, candidate).await?;
            return Ok(Some(Duration::ZERO));
        }
        if let Some(before) = at.checked_sub(1).and_then(|before| page.candidates.get(before)) {
            self.store.finish_candidates_up_to(page.claim, before).await?;
        }
        Err(error)
    }

    async fn failed_too_often(&self, candidate: &Candidate, error: &store::Error) -> bool {
        if error.is_lock_timeout() || self.read_nothing().await.is_err() {
            return false;
        }
        let key = (candidate.key.clone(), candidate.event.id);
        let mut failures = self.failures.lock();
        let times = failures.remove(&key).unwrap_or_default() + 1;
        if times >= MAX_READ_ATTEMPTS {
            return true;
        }
        if failures.len() >= MAX_FAILURES {
            failures.clear();
        }
        failures.insert(key, times);
        false
    }

    /// Runs the statements that read a wait's rows for an execution that does not exist, to find out whether the
    /// database can run them at all.
    async fn read_nothing(&self) -> Result<(), store::Error> {
        let nobody = ExecutionId(Uuid::nil());
        self.store.some_executions(&[nobody]).await?;
        self.store.node_states(nobody).await?;
        self.store.some_nodes(nobody, &["none"]).await?;
        Ok(())
    }

    async fn answer(&self, candidate: &Candidate, cache: &mut TurnCache) -> Result<(), store::Error> {
        match self.store.answer_with_event(&candidate.key, &candidate.event.scope()).await {
            Ok(AnswerOutcome::Accepted(call)) => {
                ::metrics::counter!(metrics::ANSWERS.name, "source" => "event").increment(1);
                self.run_notifier.notify(call);
            }
            Ok(AnswerOutcome::Expired(call)) => self.run_notifier.notify(call),
            // The wait was answered or has ended in the meantime, so its other candidates need no check.
            Ok(_) | Err(store::Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        cache.answered.insert(candidate.key.clone());
        Ok(())
    }

    async fn matches(&self, candidate: &Candidate, cache: &mut TurnCache) -> Result<bool, store::Error> {
        let key = &candidate.key;
        if cache.answered.contains(key) {
            return Ok(false);
        }
        let Some(matches) = candidate.matches.as_deref() else { return Ok(true) };
        if !cache.scopes.contains_key(key) {
            match self.scope(cache, key, matches).await {
                Ok(Some(scope)) => drop(cache.scopes.insert(key.clone(), scope)),
                Ok(None) => return Ok(false),
                // The database did not answer, so the event is checked again when the lease has expired.
                Err(Error::Store(error)) if !error.is_answer() => return Err(error),
                Err(error) => {
                    tracing::warn!(
                        execution_id = %key.execution,
                        error = %error,
                        "Event could not be matched with a wait; the wait does not receive it"
                    );
                    return Ok(false);
                }
            }
        }
        let Some(scope) = cache.scopes.get_mut(key) else { return Ok(false) };
        scope.event = Arc::new(candidate.event.scope());
        let matched = if expression::may_take_long(matches) {
            let (matches, scope) = (matches.to_owned(), scope.clone());
            compute::run(SERVICE, move || wait_for_event::fits(Some(&matches), &scope)).await
        } else {
            wait_for_event::fits(Some(matches), scope)
        };
        Ok(matched.unwrap_or_else(|failure| {
            let (execution, node) = (key.execution, &key.node);
            tracing::debug!(execution_id = %execution, %node, event_id = %candidate.event.id, reason = failure.message,
                "Event does not match: the wait's condition failed");
            false
        }))
    }

    /// The scope that the wait's own templates see; none if its execution was deleted.
    async fn scope(&self, cache: &mut TurnCache, key: &WaitKey, matches: &str) -> Result<Option<Scope>, Error> {
        if cache.one_by_one && !cache.executions.contains_key(&key.execution) {
            let found = self.store.some_executions(&[key.execution]).await?;
            cache.executions.extend(found.into_iter().map(|execution| (execution.id, execution)));
        }
        let Some(execution) = cache.executions.get(&key.execution) else { return Ok(None) };
        let version: Arc<LoadedVersion> = self.versions.get(&self.store, execution.version).await?;
        let (wanted, statuses) = referenced_nodes(matches);
        let names: Vec<&str> = wanted.iter().map(NodeKey::as_str).collect();
        let mut settled_nodes = BTreeMap::new();
        let all = if statuses { self.store.node_states(execution.id).await? } else { Vec::new() };
        for row in all.into_iter().filter(|row| row.status.is_settled()) {
            settled_nodes.insert(row.node, engine::scope::seen(row.status, Value::Null, None));
        }
        let some = if names.is_empty() { Vec::new() } else { self.store.some_nodes(execution.id, &names).await? };
        for row in some.into_iter().filter(|row| row.status.is_settled()) {
            let settled = engine::scope::seen(row.status, row.output.unwrap_or_default(), row.error.as_ref());
            settled_nodes.insert(row.node, settled);
        }
        let start = engine::scope::ExecutionStart {
            execution: execution.id,
            workspace: execution.workspace,
            created_at: execution.created_at,
            workflow: version.definition.name.as_deref(),
            vars: &version.definition.vars,
            input: execution.input.clone().unwrap_or_default(),
            trigger: execution.trigger.clone(),
        };
        let mut scope = Scope { nodes: settled_nodes, ..engine::scope::at_start(start) };
        if key.iteration > 0 {
            scope.item = Arc::new(self.store.item_of(key).await?);
            scope.index = json!(key.iteration - 1);
        }
        Ok(Some(scope))
    }
}

/// The nodes that an expression refers to, and whether it also reads the statuses of other nodes.
fn referenced_nodes(matches: &str) -> (BTreeSet<NodeKey>, bool) {
    let Ok(expression) = Expression::parse(matches) else { return (BTreeSet::new(), false) };
    let roots = expression.references().into_iter().filter_map(|path| path.root().ok());
    let keys = roots.filter_map(|(root, _)| match root {
        Root::Node { key, .. } => NodeKey::new(key).ok(),
        _ => None,
    });
    (keys.collect(), expression.uses_statuses())
}
