//! What nodes have somebody outside do: answers that are waited for, tasks for workers, activities of the user's own.
//!
//! Invariants
//! - Asking is fenced and repeatable: whoever performs the node again hears how its ask stands. Whether it was answered or its time is
//!   up is the store's to say.
//! - A look says what the rows say: what an earlier look stored and could not tell is told by the next.
//! - What an activity of the user's own is given and answers is bounded: it crosses Temporal as it is.
//!
//! What happens if this process dies: before the ask's commit nobody was asked; after it the node is performed again and asks again;
//! after an answer was seen and before its node is settled, the next look finds it (`store::run::attempt::unheard`).
//!
//! Not here: keeping asks and answers (`store::wait`), what an answer makes of its node (`kernel::kind`).

use std::time::Duration;

use engine::nodes::{self, Done};
use kernel::definition::Kind;
use kernel::ids::NodeKey;
use kernel::kind::{self, Config, task, wait_for_event};
use kernel::run::failure::{Class, Failure};
use serde_json::Value;
use store::wait::{Ask, Place, Standing, What};
use temporalio_sdk::activities::ActivityError;

use super::runs::Held;
use super::told::{Attempt, over};
use super::{Kit, again, whole_ms};
use crate::message::{Ended, Handed, Look, Looked, Report};

/// The most answers of one look.
const MOST: i64 = 100;
/// The most bytes that an activity of the user's own is given: Temporal takes two megabytes of anything.
const MOST_BYTES: usize = 1 << 20;

/// What a node asked.
enum Asked {
    Wait(wait_for_event::Config),
    Task,
}

impl Kit {
    pub(super) async fn ask_for_an_answer(
        &self,
        attempt: &Attempt<'_>,
        held: &Held,
        config: wait_for_event::Config,
        input: Value,
    ) -> Result<Ended, ActivityError> {
        let what = What::Wait { event: config.event.clone(), matches: config.matches.clone() };
        self.ask(attempt, held, what, input, Asked::Wait(config)).await
    }

    /// A task is offered in a queue, or is an activity of the user's own.
    pub(super) async fn hand_out(
        &self,
        attempt: &Attempt<'_>,
        held: &Held,
        config: task::Config,
    ) -> Result<Ended, ActivityError> {
        if config.activity.is_none() {
            let what = What::Task { queue: config.queue, lease: config.lease };
            return self.ask(attempt, held, what, config.input, Asked::Task).await;
        }
        if nodes::size(&config.input) > MOST_BYTES {
            let message = format!("the input of an activity may have {} MiB at most", MOST_BYTES >> 20);
            return self.ended(attempt, Err(Failure::new(Class::ValidationError, message))).await;
        }
        // Only a lease that was asked for: an activity that sends no heartbeats is not to be lost.
        let lease_ms = attempt.spec.with.get("lease").map(|_| whole_ms(config.lease));
        let Attempt { attempt: number, fence, spec, .. } = attempt;
        let handed =
            Handed { input: config.input, attempt: *number, fence: *fence, limit_ms: spec.timeout_ms, lease_ms };
        Ok(Ended::Handed(Box::new(handed)))
    }

    async fn ask(
        &self,
        attempt: &Attempt<'_>,
        held: &Held,
        what: What,
        input: Value,
        asked: Asked,
    ) -> Result<Ended, ActivityError> {
        let Attempt { hold, spec, iteration, .. } = attempt;
        let ask = Ask {
            place: Place { execution: hold.execution, node: spec.key.clone(), iteration: *iteration },
            workspace: held.begun.workspace,
            attempt: attempt.attempt,
            what,
            input,
            expires_in: spec.timeout_ms.map(Duration::from_millis),
        };
        match self.store.ask(*hold, &ask).await {
            Ok(None) => Ok(Ended::Lost),
            Ok(Some(Standing::Open { expires_in })) => Ok(Ended::Asked { expires_ms: expires_in.map(whole_ms) }),
            Ok(Some(standing)) => self.ended(attempt, asked.result(standing).and_then(nodes::storable)).await,
            Err(store::Error::Refused { .. }) => {
                let message = "the database cannot hold what is asked";
                self.ended(attempt, Err(Failure::new(Class::ValidationError, message))).await
            }
            Err(store::Error::Conflict(_)) => self.stands(attempt).await,
            Err(error) => Err(again(error)),
        }
    }

    /// Settles nodes whose asks are over, and says how those that asked stand.
    pub(super) async fn look_for_answers(&self, look: Look) -> Result<Looked, ActivityError> {
        let Look { hold, asked } = look;
        let Some(held) = self.held(hold).await? else { return Ok(Looked::Lost) };
        if self.store.answers(hold).await.map_err(again)?.is_none() {
            return Ok(Looked::Lost);
        }
        let unheard = self.store.unheard(hold.execution, MOST).await.map_err(again)?;
        let more = i64::try_from(unheard.len()).is_ok_and(|found| found >= MOST);
        for one in unheard {
            let node = held.version.plan.index_of(&one.node);
            let Some(spec) = node.and_then(|node| held.spec(node, one.iteration)) else { continue };
            let asked = match one.input.map(|input| kind::prepare(spec.kind, input)) {
                Some(Ok(Config::WaitForEvent(config))) => Asked::Wait(config),
                _ => Asked::Task,
            };
            let (attempt, fence, iteration) = (one.attempt, one.fence, one.iteration);
            let attempt = Attempt { hold, spec: &spec, iteration, attempt, fence };
            self.ended(&attempt, asked.result(one.standing).and_then(nodes::storable)).await?;
        }
        let key = |node: usize| held.version.definition.nodes.get(node).map(|node| &node.key);
        let places: Vec<(&NodeKey, i32)> =
            asked.iter().filter_map(|(node, iteration)| Some((key(*node)?, *iteration))).collect();
        let rows = self.store.placed_nodes(hold.execution, &places).await.map_err(again)?;
        let ended = rows.into_iter().filter_map(|(iteration, row)| {
            let node = held.version.plan.index_of(&row.node)?;
            Some((node, iteration, over(row)?))
        });
        Ok(Looked::Done { ended: ended.collect(), more })
    }

    /// Settles a task that an activity of the user's own did, or failed to.
    pub(super) async fn take_report(&self, report: Report) -> Result<Ended, ActivityError> {
        let Report { hold, node, iteration, attempt, fence, result } = report;
        let Some(held) = self.held(hold).await? else { return Ok(Ended::Lost) };
        let Some(spec) = held.spec(node, iteration).filter(|spec| spec.kind == Kind::Task) else {
            return Ok(Ended::Lost);
        };
        let attempt = Attempt { hold, spec: &spec, iteration, attempt, fence };
        self.ended(&attempt, result.map(Done::plain).and_then(nodes::storable)).await
    }
}

impl Asked {
    /// What an ask that is over makes of its node.
    fn result(self, standing: Standing) -> Result<Done, Failure> {
        let result = match (self, standing) {
            (_, Standing::Open { .. }) => {
                Err(Failure::new(Class::ExecutionError, "an open ask was taken for answered"))
            }
            (Asked::Wait(config), Standing::Answered(answer)) => {
                answer.result.map(|data| config.answered(data, &answer.by, answer.at))
            }
            (Asked::Wait(config), Standing::Expired) => config.expired(),
            (Asked::Task, Standing::Answered(answer)) => answer.result,
            (Asked::Task, Standing::Expired) => Err(task::expired()),
        };
        result.map(Done::plain)
    }
}
