//! Calling out for a node: sent, told to stop, or not sent at all.
//!
//! Invariants
//! - A call that may be made at most once is noted as begun when all is ready to send it, and not before: a stop or a
//!   crash until then leaves it as if it had never been tried.
//! - A call that is stopped after the note goes by whether a byte may have left (`outbound::Sent`), as with the
//!   embedded engine. If none has, the note is withdrawn.
//! - Trouble with the database while that is noted costs time; the fence of the taking says whether it is still ours to
//!   send.
//!
//! What happens if this process dies: before a call is noted as begun, the next worker makes it; after that its end is
//! UNKNOWN. Any other call is made again with the same token.
//!
//! Not here: taking the node and telling what came of it (`node`, `told`).

use std::time::Instant;

use engine::attempt;
use engine::insist::insist;
use engine::nodes::Done;
use engine::nodes::call::{Call, Unprepared};
use engine::vault;
use kernel::definition::Delivery;
use kernel::run::failure::{Class, Failure};
use temporalio_sdk::activities::ActivityContext;

use super::Kit;
use super::told::Attempt;

/// What became of a call.
pub(super) enum Called {
    Ended(Result<Done, Failure>),
    /// Stopped on the way; `begun`: it may have taken effect.
    Stopped {
        begun: bool,
    },
    /// Not sent: somebody else has the node by now, or the run.
    Overtaken,
    /// Not sent: its secrets cannot be opened now.
    NotNow(vault::Error),
}

impl From<Unprepared> for Called {
    fn from(unprepared: Unprepared) -> Called {
        match unprepared {
            Unprepared::Failed(failure) => Called::Ended(Err(failure)),
            Unprepared::NotNow(_, error) => Called::NotNow(error),
        }
    }
}

impl Kit {
    /// Calls out, unless it is told to stop.
    pub(super) async fn call(&self, context: &ActivityContext, attempt: &Attempt<'_>, call: Box<dyn Call>) -> Called {
        let (spec, since) = (attempt.spec, Instant::now());
        let called = match spec.delivery {
            Delivery::AtMostOnce => self.call_once(context, attempt, call).await,
            Delivery::AtLeastOnce => {
                let calling = self.prepare_and_send(call);
                unless_stopped(context, calling).await.unwrap_or(Called::Stopped { begun: true })
            }
        };
        let outcome = match &called {
            Called::Ended(Ok(_)) => "completed",
            Called::Ended(Err(_)) => "failed",
            Called::Stopped { .. } | Called::Overtaken => "canceled",
            Called::NotNow(_) => return called,
        };
        attempt::measure(spec.kind, outcome, since.elapsed());
        called
    }

    async fn prepare_and_send(&self, call: Box<dyn Call>) -> Called {
        match call.prepare(&self.means).await {
            Ok(prepared) => Called::Ended(prepared.send().await),
            Err(unprepared) => unprepared.into(),
        }
    }

    /// All that is to be waited for comes first, then the note that it begins, then the call.
    async fn call_once(&self, context: &ActivityContext, attempt: &Attempt<'_>, call: Box<dyn Call>) -> Called {
        let preparing = async {
            let prepared = call.prepare(&self.means).await;
            self.means.pulse.fresh().await;
            prepared
        };
        let prepared = match unless_stopped(context, preparing).await {
            None => return Called::Stopped { begun: false },
            Some(Err(unprepared)) => return unprepared.into(),
            Some(Ok(prepared)) => prepared,
        };
        if context.is_cancelled() {
            return Called::Stopped { begun: false };
        }
        let Attempt { hold, spec, iteration, fence, .. } = attempt;
        match insist(|| self.store.begin_once(*hold, &spec.key, *iteration, *fence)).await {
            Ok(true) => {}
            Ok(false) => return Called::Overtaken,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "A call cannot be noted as begun");
                return Called::Ended(Err(Failure::new(Class::ExecutionError, "what is stored of it cannot be read")));
            }
        }
        // It may have been told to stop while the database was waited for.
        if context.is_cancelled() {
            return self.stopped_once(attempt, false).await;
        }
        let sent = prepared.sent();
        match unless_stopped(context, prepared.send()).await {
            Some(result) => Called::Ended(result),
            None => self.stopped_once(attempt, sent.is_set()).await,
        }
    }

    /// A call that was noted as begun is told to stop: if it was not sent, the note is withdrawn, and its row says so
    /// from then on.
    async fn stopped_once(&self, attempt: &Attempt<'_>, sent: bool) -> Called {
        let Attempt { hold, spec, iteration, fence, .. } = attempt;
        if sent {
            return Called::Stopped { begun: true };
        }
        match insist(|| self.store.withdraw_once(*hold, &spec.key, *iteration, *fence)).await {
            // Also if there was nothing to withdraw: then somebody else has the node by now, and its row answers for
            // it.
            Ok(_) => Called::Stopped { begun: false },
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "A note that a call begins cannot be withdrawn"
                );
                Called::Stopped { begun: true }
            }
        }
    }
}

/// What the work comes to; none if the activity is to stop first.
async fn unless_stopped<T>(context: &ActivityContext, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        result = work => Some(result),
        () = context.cancelled() => None,
    }
}
