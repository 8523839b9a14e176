//! Events that answer waits: the candidates of each wait are judged in order, and the first for which `match` holds is the answer.
//!
//! Invariants
//! - Whether an event fits is the kernel's to say (`kernel::kind::wait_for_event`); it sees what the node's own templates see, and the event.
//! - An event that cannot be judged fits nobody: it must not keep a wait from the next one.
//! - A candidate is dropped after what it led to is stored. Judged twice, it is told that the wait is answered.
//!
//! Not here: which events are candidates (`store`'s `functions/ask.sql`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::versions::{Error, Version, Versions};
use kernel::expression::{Expression, Root, Scope};
use kernel::ids::NodeKey;
use kernel::kind::wait_for_event;
use kernel::signals::metrics;
use serde_json::{Value, json};
use store::Store;
use store::ask::{Candidate, Told};

use crate::calls::Calls;

/// Candidates judged in one look.
const BATCH: i32 = 200;

pub(crate) struct Judge {
    pub(crate) store: Store,
    pub(crate) calls: Calls,
    pub(crate) versions: Versions,
}

impl Judge {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        self.store.look_for_events(BATCH).await?;
        let candidates = self.store.candidates(BATCH).await?;
        let full = candidates.len() >= usize::try_from(BATCH).unwrap_or(usize::MAX);
        for candidate in &candidates {
            if self.fits(candidate).await? {
                let told = self.store.answer_with_event(&candidate.place, &candidate.event.scope()).await;
                match told {
                    Ok(Told::Accepted(call)) => {
                        ::metrics::counter!(metrics::ANSWERS.name, "by" => "event").increment(1);
                        self.calls.tell(call);
                    }
                    Ok(Told::Expired(call)) => self.calls.tell(call),
                    // Answered or ended meanwhile: there is nothing left to judge.
                    Ok(_) | Err(store::Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            self.store.drop_candidates(&[candidate.id]).await?;
        }
        Ok(full.then_some(Duration::ZERO))
    }

    async fn fits(&self, candidate: &Candidate) -> Result<bool, store::Error> {
        let Some(matches) = candidate.matches.as_deref() else { return Ok(true) };
        let scope = match self.scope(candidate, matches).await {
            Ok(scope) => scope,
            Err(Error::Store(error)) if error.is_unavailable() => return Err(error),
            Err(error) => {
                tracing::warn!(execution = %candidate.place.execution, error = %error, "An event could not be judged");
                return Ok(false);
            }
        };
        Ok(wait_for_event::fits(Some(matches), &scope).unwrap_or_else(|failure| {
            let (execution, node) = (candidate.place.execution, &candidate.place.node);
            tracing::debug!(%execution, %node, event = %candidate.event.id, why = failure.message, "An event cannot be matched");
            false
        }))
    }

    /// What the wait's own templates see, and the event.
    async fn scope(&self, candidate: &Candidate, matches: &str) -> Result<Scope, Error> {
        let place = &candidate.place;
        let execution = self.store.execution(place.execution, None).await?;
        let version: Arc<Version> = self.versions.get(&self.store, execution.version).await?;
        let (wanted, statuses) = looks(matches);
        let names: Vec<&str> = wanted.iter().map(NodeKey::as_str).collect();
        let mut seen = BTreeMap::new();
        let all = if statuses { self.store.node_states(execution.id).await? } else { Vec::new() };
        for row in all.into_iter().filter(|row| row.status.is_settled()) {
            seen.insert(row.node, engine::scope::seen(row.status, Value::Null, None));
        }
        for row in self.store.some_nodes(execution.id, &names).await?.into_iter().filter(|row| row.status.is_settled())
        {
            let settled = engine::scope::seen(row.status, row.output.unwrap_or_default(), row.error.as_ref());
            seen.insert(row.node, settled);
        }
        let start = engine::scope::Start {
            execution: execution.id,
            workspace: execution.workspace,
            created_at: execution.created_at,
            workflow: version.definition.name.as_deref(),
            vars: &version.definition.vars,
            input: execution.input.unwrap_or_default(),
            trigger: execution.trigger,
        };
        let mut scope =
            Scope { nodes: seen, event: Arc::new(candidate.event.scope()), ..engine::scope::at_start(start) };
        if place.iteration > 0 {
            scope.item = Arc::new(self.store.item_of(place).await?);
            scope.index = json!(place.iteration - 1);
        }
        Ok(scope)
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
