//! Sends the calls of nodes, and stops them when their activity is canceled.
//!
//! Invariants
//! - A call that may be made at most once is recorded as begun when it is ready to be sent, and not earlier. After a
//!   stop or a crash before that, it is as if the call had never been tried.
//! - If such a call is stopped, it may have had an effect only if a byte may have left this process
//!   (`engine::outbound::SentFlag`), as in the embedded engine. If no byte has left, the worker withdraws the record.
//! - A database error while the worker writes that record only delays the call. The attempt's fence decides whether
//!   this worker may still send it.
//!
//! What happens if this process dies: an at-most-once call that was not recorded as begun is made by the next worker.
//! After the record, its node ends as `UNKNOWN`. Any other call is made again with the same token.
//!
//! Not here: beginning the attempt (`node`), storing its result (`attempt_end`).

use std::time::Instant;

use engine::attempt;
use engine::backoff::retry_until_stored;
use engine::nodes::NodeOutput;
use engine::nodes::call::{Call, PrepareError};
use engine::vault;
use kernel::definition::Delivery;
use kernel::run::failure::Failure;
use temporalio_sdk::activities::ActivityContext;

use super::RunActivities;
use super::attempt_end::Attempt;

/// The outcome of a call.
pub(super) enum CallOutcome {
    Ended(Result<NodeOutput, Failure>),
    /// The call was stopped. `begun`: it may have had an effect.
    Stopped {
        begun: bool,
    },
    /// Not sent: another attempt at the node has begun, or another run performs the execution.
    Overtaken,
    /// Not sent: its secrets cannot be decrypted at the moment.
    SecretsUnavailable(vault::Error),
}

impl From<PrepareError> for CallOutcome {
    fn from(unprepared: PrepareError) -> CallOutcome {
        match unprepared {
            PrepareError::Failed(failure) => CallOutcome::Ended(Err(failure)),
            PrepareError::SecretsUnavailable(_, error) => CallOutcome::SecretsUnavailable(error),
        }
    }
}

impl RunActivities {
    /// Makes a call, unless the activity is canceled first.
    pub(super) async fn make_call(
        &self,
        context: &ActivityContext,
        attempt: &Attempt<'_>,
        call: Box<dyn Call>,
    ) -> CallOutcome {
        let (spec, since) = (attempt.spec, Instant::now());
        let called = match spec.delivery {
            Delivery::AtMostOnce => self.call_once(context, attempt, call).await,
            Delivery::AtLeastOnce => {
                let calling = self.prepare_and_send(call);
                unless_stopped(context, calling).await.unwrap_or(CallOutcome::Stopped { begun: true })
            }
        };
        let outcome = match &called {
            CallOutcome::Ended(Ok(_)) => "completed",
            CallOutcome::Ended(Err(_)) => "failed",
            CallOutcome::Stopped { .. } | CallOutcome::Overtaken => "canceled",
            CallOutcome::SecretsUnavailable(_) => return called,
        };
        attempt::measure(spec.kind, outcome, since.elapsed());
        called
    }

    async fn prepare_and_send(&self, call: Box<dyn Call>) -> CallOutcome {
        match call.prepare(&self.resources).await {
            Ok(prepared) => CallOutcome::Ended(prepared.send().await),
            Err(unprepared) => unprepared.into(),
        }
    }

    /// First waits for everything that the call needs, then records that it begins, then sends it.
    async fn call_once(&self, context: &ActivityContext, attempt: &Attempt<'_>, call: Box<dyn Call>) -> CallOutcome {
        let preparing = async {
            let prepared = call.prepare(&self.resources).await;
            self.resources.liveness.wait_until_live().await;
            prepared
        };
        let prepared = match unless_stopped(context, preparing).await {
            None => return CallOutcome::Stopped { begun: false },
            Some(Err(unprepared)) => return unprepared.into(),
            Some(Ok(prepared)) => prepared,
        };
        if context.is_cancelled() {
            return CallOutcome::Stopped { begun: false };
        }
        let Attempt { hold, spec, iteration, fence, .. } = attempt;
        match retry_until_stored(|| self.store.begin_once(*hold, &spec.key, *iteration, *fence)).await {
            Ok(true) => {}
            Ok(false) => return CallOutcome::Overtaken,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "Call not sent: the record that it begins could not be stored"
                );
                return CallOutcome::Ended(Err(Failure::unreadable_state()));
            }
        }
        // The activity may have been canceled during the write.
        if context.is_cancelled() {
            return self.stopped_once(attempt, false).await;
        }
        let sent = prepared.sent();
        match unless_stopped(context, prepared.send()).await {
            Some(result) => CallOutcome::Ended(result),
            None => self.stopped_once(attempt, sent.is_set()).await,
        }
    }

    /// Stops a call that was recorded as begun. If it was not sent, that record is withdrawn.
    async fn stopped_once(&self, attempt: &Attempt<'_>, sent: bool) -> CallOutcome {
        let Attempt { hold, spec, iteration, fence, .. } = attempt;
        if sent {
            return CallOutcome::Stopped { begun: true };
        }
        match retry_until_stored(|| self.store.withdraw_once(*hold, &spec.key, *iteration, *fence)).await {
            // If there was no record to withdraw, another attempt at the node has begun, and the row decides.
            Ok(_) => CallOutcome::Stopped { begun: false },
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "Failed to withdraw the record of a call that was not sent; its node ends as UNKNOWN"
                );
                CallOutcome::Stopped { begun: true }
            }
        }
    }
}

/// The result of the work. None if the activity is canceled first.
async fn unless_stopped<T>(context: &ActivityContext, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        result = work => Some(result),
        () = context.cancelled() => None,
    }
}
