//! Starts ready nodes: each kind of work as an activity, a timer or a child workflow.
//!
//! Invariants
//! - All work that is started here returns exactly one event, also if it fails or is canceled.
//! - Calls, children and collecting a loop's outputs count as in flight. Delays and waits do not.
//!
//! Not here: children (`children`).

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use kernel::definition::Manner;
use kernel::kind::task::{self, Activity};
use kernel::orchestration::{Target, TargetState};
use kernel::run::failure::{Class, Failure};
use serde_json::Value;
use temporalio_common::data_converters::RawValue;
use temporalio_common::error::IncomingError;
use temporalio_common::{UntypedActivity, protos::temporal::api::common::v1::Payload};
use temporalio_sdk::{ActivityExecutionError, TimerResult, WorkflowCancellationToken, WorkflowContext};

use super::drive::WorkflowDriver;
use super::events::WorkflowEvent;
use super::{WorkflowOrchestration, children, options};
use crate::activities::RunActivities;
use crate::codec;
use crate::message::{CollectRequest, GraphNode, PerformRequest, PerformResult, TaskReport, UserTask};

pub(super) type Context = WorkflowContext<WorkflowOrchestration>;

impl<'a> WorkflowDriver<'a> {
    pub(super) fn begin(&mut self, at: Target) {
        let token = WorkflowCancellationToken::new();
        let spec = self.shape(at).clone();
        let context = self.context;
        let request = PerformRequest { is_last: self.is_last(at), ..self.request_of(at) };
        // A loop is resumed when its list is loaded (`open_loop`). If it is stopped before, its items are loaded first.
        let begun_earlier = spec.kind.manner() != Manner::Loops && self.machine.take_begun_earlier(at);
        if let (0, Some(failed)) = (at.iteration, self.collecting.remove(&at.node)) {
            self.in_flight.insert(at, token);
            let request = CollectRequest { hold: self.hold, node: at.node, failed };
            let collecting = context.execute_local_activity(RunActivities::collect, request, options::recorded());
            return self.events.push(collecting.map(move |it| event_of(at, it)).boxed_local());
        }
        let event = match (spec.kind.manner(), spec.activity.clone()) {
            (Manner::Waits, _) => {
                self.enter(at, TargetState::Delay);
                self.waiting.insert(at, token.clone());
                run_delay(context, at, request, token).boxed_local()
            }
            (Manner::WaitsForAnswer, None) => {
                self.waiting.insert(at, token);
                let storing = context.execute_local_activity(RunActivities::node, request, options::recorded());
                storing.map(move |it| event_of(at, it)).boxed_local()
            }
            (Manner::WaitsForAnswer, Some(activity)) => {
                self.in_flight.insert(at, token.clone());
                run_user_activity(context, at, request, spec, activity, self.deadline, token).boxed_local()
            }
            (Manner::Spawns, _) => {
                self.in_flight.insert(at, token.clone());
                children::run_child(context, at, request, token, begun_earlier).boxed_local()
            }
            (manner @ (Manner::Calls | Manner::Computes | Manner::Loops), _) => {
                self.in_flight.insert(at, token.clone());
                let called = request.clone();
                let calling = if manner == Manner::Calls && !spec.local {
                    let options = options::node(&spec, at.iteration, self.heartbeat, &token);
                    context.execute_activity(RunActivities::node, called, options).boxed_local()
                } else {
                    let options = options::local_node(&spec, &token);
                    context.execute_local_activity(RunActivities::node, called, options).boxed_local()
                };
                let calling = calling.map(move |it| event_of(at, it)).boxed_local();
                if spec.at_most_once {
                    perform_at_most_once(context, at, request, token, calling).boxed_local()
                } else {
                    calling
                }
            }
        };
        self.events.push(event);
    }

    /// The request to perform a node.
    pub(super) fn request_of(&self, at: Target) -> PerformRequest {
        let (node, iteration) = (at.node, at.iteration);
        PerformRequest { hold: self.hold, node, iteration, closed: None, earlier_child: None, is_last: false }
    }
}

/// Stores the time at which a delay ends, and waits until then.
fn run_delay(
    context: &Context,
    at: Target,
    request: PerformRequest,
    token: WorkflowCancellationToken,
) -> impl Future<Output = WorkflowEvent<'_>> {
    let storing = context.execute_local_activity(RunActivities::node, request, options::recorded());
    async move {
        match storing.await {
            Ok(PerformResult::Waiting { ms }) => {
                match context.timer(options::timer(Duration::from_millis(ms), &token)).await {
                    TimerResult::Fired if !token.is_cancelled() => WorkflowEvent::Due(at),
                    TimerResult::Fired | TimerResult::Cancelled => WorkflowEvent::Aborted(at),
                }
            }
            other => event_of(at, other),
        }
    }
}

/// Performs a node that may be performed at most once. If its activity returns no result, the node's row says whether
/// the attempt had begun.
async fn perform_at_most_once<'a>(
    context: &'a Context,
    at: Target,
    request: PerformRequest,
    token: WorkflowCancellationToken,
    calling: LocalBoxFuture<'a, WorkflowEvent<'a>>,
) -> WorkflowEvent<'a> {
    match calling.await {
        WorkflowEvent::Aborted(_) | WorkflowEvent::ActivityFailed(_) => {
            children::settle_closed(context, at, request, &token).await
        }
        event => event,
    }
}

/// Lets a user's own worker perform a task, and stores its result.
async fn run_user_activity(
    context: &Context,
    at: Target,
    request: PerformRequest,
    spec: GraphNode,
    activity: Activity,
    longest: Duration,
    token: WorkflowCancellationToken,
) -> WorkflowEvent<'_> {
    let PerformRequest { hold, node, iteration, .. } = request;
    let task = match context.execute_local_activity(RunActivities::node, request, options::recorded()).await {
        Ok(PerformResult::UserTask(task)) => *task,
        other => return event_of(at, other),
    };
    let UserTask { input, attempt, fence, limit_ms, lease_ms } = task;
    let limit = limit_ms.map_or(longest, Duration::from_millis);
    let times = (limit, lease_ms.map(Duration::from_millis));
    let options = options::user_activity(&spec, &activity, iteration, times, &token);
    let input = RawValue::new(vec![codec::unencrypted(&input)]);
    let result = match context.execute_activity(UntypedActivity::new(activity.name), input, options).await {
        Ok(output) => read(output.payloads.first()),
        Err(error) if error.as_cancelled().is_some() => return WorkflowEvent::Aborted(at),
        Err(error) => Err(failure_of(&error)),
    };
    let report = TaskReport { hold, node, iteration, attempt, fence, result };
    event_of(at, context.execute_local_activity(RunActivities::report, report, options::recorded()).await)
}

/// Reads the result of a user's own activity. It must be JSON; an empty result is null.
fn read(payload: Option<&Payload>) -> Result<Value, Failure> {
    match payload {
        None => Ok(Value::Null),
        Some(payload) if payload.data.is_empty() => Ok(Value::Null),
        Some(payload) => kernel::exact::read(&payload.data).map_err(|_| {
            Failure::new(Class::ValidationError, "the activity's result is not JSON; make the activity return JSON")
        }),
    }
}

/// The failure of a user's own activity: the message of its worker, a timeout, or Temporal's error.
fn failure_of(error: &ActivityExecutionError) -> Failure {
    let cause = match error {
        ActivityExecutionError::Failed(failed) => failed.cause(),
        _ => None,
    };
    match cause {
        Some(IncomingError::Application(failure)) => task::failed(&failure.to_string(), !failure.is_non_retryable()),
        Some(IncomingError::Timeout(_)) => task::expired(),
        _ => Failure::new(Class::ExecutionError, error.to_string()),
    }
}

pub(super) fn event_of<'a>(at: Target, result: Result<PerformResult, ActivityExecutionError>) -> WorkflowEvent<'a> {
    match result {
        Ok(ended) => WorkflowEvent::Ended(at, ended),
        Err(error) if error.as_cancelled().is_some() => WorkflowEvent::Aborted(at),
        Err(_) => WorkflowEvent::ActivityFailed(at),
    }
}
