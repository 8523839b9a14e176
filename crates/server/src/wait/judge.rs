//! Events that answer waits: the candidates of each wait are judged in order, and the first for which `match` holds is
//! the answer.
//!
//! Invariants
//! - Workspaces take turns, a page each, or what of it was judged within a second; processes share the turns.
//! - Whether an event fits is the kernel's to say (`kernel::kind::wait_for_event`); it sees what the node's own
//!   templates see, and the event.
//! - An event that cannot be judged fits nobody: it must not keep a wait from the next one.
//! - Nor may one whose rows cannot be read: what was judged before it counts, and after `TRIES` failures it is passed
//!   over. A failure counts only if the same statements can read other rows.
//! - A page counts as judged after what it led to is stored. Judged twice, an event is told that the wait is answered.
//!
//! Not here: which events are candidates (`store`'s `functions/ask.sql`, `functions/candidate.sql`).

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::compute;
use engine::versions::{Error, Version, Versions};
use kernel::expression::{self, Expression, Root, Scope};
use kernel::ids::{ExecutionId, NodeKey, WorkspaceId};
use kernel::kind::wait_for_event;
use kernel::signals::metrics;
use serde_json::{Value, json};
use store::Store;
use store::execution::Execution;
use store::wait::{Candidate, Page, Place, Told};
use uuid::Uuid;

use crate::run::notify::Calls;

/// Pairs of a wait and an event that are judged in one turn of a workspace.
const BATCH: i32 = 200;
/// What is not judged after this is another's to judge: a process that stopped in the middle delays its workspace by so
/// much.
const LEASE: Duration = Duration::from_secs(15);
/// How long one turn of a workspace lasts, far below the lease: what is not judged by then waits for its next turn.
const BUDGET: Duration = Duration::from_secs(1);

/// How often what a wait sees is read in vain before the event is passed over.
const TRIES: u32 = 3;
/// How many waits that cannot be judged are remembered.
const MOST_FAILING: usize = 1_000;

/// Whose turn it is to compute: a loop serves every workspace, and none may delay it.
const SERVICE: WorkspaceId = WorkspaceId(Uuid::nil());

pub(crate) struct Judge {
    pub(crate) store: Store,
    pub(crate) calls: Calls,
    pub(crate) versions: Versions,
    /// The workspace whose turn it was last.
    pub(crate) last: Mutex<Option<WorkspaceId>>,
    /// How often events could not be judged for a wait because nothing of it can be read.
    pub(crate) failing: Mutex<BTreeMap<(Place, Uuid), u32>>,
}

/// What a turn has read: each execution once, and what each wait's own templates see.
#[derive(Default)]
struct Read {
    /// The executions could not be read together: each is read when it is needed.
    one_by_one: bool,
    executions: BTreeMap<ExecutionId, Execution>,
    scopes: BTreeMap<Place, Scope>,
    /// Waits that have their answer, or take none any more.
    over: BTreeSet<Place>,
}

impl Judge {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        self.store.look_for_events(BATCH).await?;
        let last = *self.last.lock();
        let Some(page) = self.store.take_candidates(last, BATCH, LEASE).await? else { return Ok(None) };
        *self.last.lock() = Some(page.workspace);
        for (event, error) in &page.unreadable {
            tracing::warn!(workspace = %page.workspace, %event, error, "An event cannot be read: no wait hears of it");
        }
        let mut read = match self.executions(&page).await {
            Ok(executions) => Read { executions, ..Read::default() },
            // One of them may be the cause.
            Err(_) => Read { one_by_one: true, ..Read::default() },
        };
        let since = Instant::now();
        for (at, candidate) in page.candidates.iter().enumerate() {
            match self.fits(candidate, &mut read).await {
                Ok(false) => {}
                Ok(true) => self.answer(candidate, &mut read).await?,
                Err(error) => return self.unreadable(&page, at, error).await,
            }
            if since.elapsed() >= BUDGET && at + 1 < page.candidates.len() {
                self.store.judged_up_to(page.claim, candidate).await?;
                return Ok(Some(Duration::ZERO));
            }
        }
        self.store.judged(page.claim).await?;
        Ok(Some(Duration::ZERO))
    }

    /// The executions whose waits look at more than the type.
    async fn executions(&self, page: &Page) -> Result<BTreeMap<ExecutionId, Execution>, store::Error> {
        let choosy = page.candidates.iter().filter(|candidate| candidate.matches.is_some());
        let ids: BTreeSet<ExecutionId> = choosy.map(|candidate| candidate.place.execution).collect();
        let found = self.store.some_executions(&ids.into_iter().collect::<Vec<_>>()).await?;
        Ok(found.into_iter().map(|execution| (execution.id, execution)).collect())
    }

    /// What a wait sees could not be read. What was judged before it counts, and the rest is judged again; unless it
    /// failed too often while everything else can be read.
    async fn unreadable(&self, page: &Page, at: usize, error: store::Error) -> Result<Option<Duration>, store::Error> {
        let candidate = &page.candidates[at];
        if self.failed_too_often(candidate, &error).await {
            tracing::warn!(
                execution = %candidate.place.execution,
                node = %candidate.place.node,
                event = %candidate.event.id,
                error = &error as &dyn std::error::Error,
                "What a wait sees cannot be read: an event is passed over"
            );
            self.store.judged_up_to(page.claim, candidate).await?;
            return Ok(Some(Duration::ZERO));
        }
        if let Some(before) = at.checked_sub(1).and_then(|before| page.candidates.get(before)) {
            self.store.judged_up_to(page.claim, before).await?;
        }
        Err(error)
    }

    async fn failed_too_often(&self, candidate: &Candidate, error: &store::Error) -> bool {
        if error.is_lock_timeout() || self.read_nothing().await.is_err() {
            return false;
        }
        let key = (candidate.place.clone(), candidate.event.id);
        let mut failing = self.failing.lock();
        let times = failing.remove(&key).unwrap_or_default() + 1;
        if times >= TRIES {
            return true;
        }
        if failing.len() >= MOST_FAILING {
            failing.clear();
        }
        failing.insert(key, times);
        false
    }

    /// Runs the statements that read what a wait sees, for an execution that does not exist.
    async fn read_nothing(&self) -> Result<(), store::Error> {
        let nobody = ExecutionId(Uuid::nil());
        self.store.some_executions(&[nobody]).await?;
        self.store.node_states(nobody).await?;
        self.store.some_nodes(nobody, &["none"]).await?;
        Ok(())
    }

    async fn answer(&self, candidate: &Candidate, read: &mut Read) -> Result<(), store::Error> {
        match self.store.answer_with_event(&candidate.place, &candidate.event.scope()).await {
            Ok(Told::Accepted(call)) => {
                ::metrics::counter!(metrics::ANSWERS.name, "by" => "event").increment(1);
                self.calls.tell(call);
            }
            Ok(Told::Expired(call)) => self.calls.tell(call),
            // Answered or ended meanwhile: there is nothing left to judge.
            Ok(_) | Err(store::Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        read.over.insert(candidate.place.clone());
        Ok(())
    }

    async fn fits(&self, candidate: &Candidate, read: &mut Read) -> Result<bool, store::Error> {
        let place = &candidate.place;
        if read.over.contains(place) {
            return Ok(false);
        }
        let Some(matches) = candidate.matches.as_deref() else { return Ok(true) };
        if !read.scopes.contains_key(place) {
            match self.scope(read, place, matches).await {
                Ok(Some(scope)) => drop(read.scopes.insert(place.clone(), scope)),
                Ok(None) => return Ok(false),
                // Nothing is known of the event yet: it is judged again when the lease is over.
                Err(Error::Store(error)) if !error.is_answer() => return Err(error),
                Err(error) => {
                    tracing::warn!(execution = %place.execution, error = %error, "An event could not be judged");
                    return Ok(false);
                }
            }
        }
        let Some(scope) = read.scopes.get_mut(place) else { return Ok(false) };
        scope.event = Arc::new(candidate.event.scope());
        let fits = if expression::may_take_long(matches) {
            let (matches, scope) = (matches.to_owned(), scope.clone());
            compute::run(SERVICE, move || wait_for_event::fits(Some(&matches), &scope)).await
        } else {
            wait_for_event::fits(Some(matches), scope)
        };
        Ok(fits.unwrap_or_else(|failure| {
            let (execution, node) = (place.execution, &place.node);
            tracing::debug!(%execution, %node, event = %candidate.event.id, why = failure.message,
                "An event cannot be matched");
            false
        }))
    }

    /// What the wait's own templates see; none if its execution is gone.
    async fn scope(&self, read: &mut Read, place: &Place, matches: &str) -> Result<Option<Scope>, Error> {
        if read.one_by_one && !read.executions.contains_key(&place.execution) {
            let found = self.store.some_executions(&[place.execution]).await?;
            read.executions.extend(found.into_iter().map(|execution| (execution.id, execution)));
        }
        let Some(execution) = read.executions.get(&place.execution) else { return Ok(None) };
        let version: Arc<Version> = self.versions.get(&self.store, execution.version).await?;
        let (wanted, statuses) = looks(matches);
        let names: Vec<&str> = wanted.iter().map(NodeKey::as_str).collect();
        let mut seen = BTreeMap::new();
        let all = if statuses { self.store.node_states(execution.id).await? } else { Vec::new() };
        for row in all.into_iter().filter(|row| row.status.is_settled()) {
            seen.insert(row.node, engine::scope::seen(row.status, Value::Null, None));
        }
        let some = if names.is_empty() { Vec::new() } else { self.store.some_nodes(execution.id, &names).await? };
        for row in some.into_iter().filter(|row| row.status.is_settled()) {
            let settled = engine::scope::seen(row.status, row.output.unwrap_or_default(), row.error.as_ref());
            seen.insert(row.node, settled);
        }
        let start = engine::scope::Start {
            execution: execution.id,
            workspace: execution.workspace,
            created_at: execution.created_at,
            workflow: version.definition.name.as_deref(),
            vars: &version.definition.vars,
            input: execution.input.clone().unwrap_or_default(),
            trigger: execution.trigger.clone(),
        };
        let mut scope = Scope { nodes: seen, ..engine::scope::at_start(start) };
        if place.iteration > 0 {
            scope.item = Arc::new(self.store.item_of(place).await?);
            scope.index = json!(place.iteration - 1);
        }
        Ok(Some(scope))
    }
}

/// The nodes that an expression looks at, and whether it asks how others ended.
fn looks(matches: &str) -> (BTreeSet<NodeKey>, bool) {
    let Ok(expression) = Expression::parse(matches) else { return (BTreeSet::new(), false) };
    let roots = expression.references().into_iter().filter_map(|path| path.root().ok());
    let keys = roots.filter_map(|(root, _)| match root {
        Root::Node { key, .. } => NodeKey::new(key).ok(),
        _ => None,
    });
    (keys.collect(), expression.looks_at_statuses())
}
