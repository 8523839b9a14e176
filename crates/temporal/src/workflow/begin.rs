//! Begins what is ready: each kind of work as what Temporal has for it.
//!
//! Invariants
//! - What is begun here comes back as news, once, whatever becomes of it.
//! - Calls, children and gathering count as in flight; what only waits does not.
//!
//! Not here: children (`children`).

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use kernel::definition::Manner;
use kernel::kind::task;
use kernel::orchestration::Target;
use kernel::run::failure::{Class, Failure};
use serde_json::Value;
use temporalio_common::data_converters::RawValue;
use temporalio_common::error::IncomingError;
use temporalio_common::{UntypedActivity, protos::temporal::api::common::v1::Payload};
use temporalio_sdk::{ActivityExecutionError, TimerResult, WorkflowCancellationToken, WorkflowContext};

use super::drive::Driver;
use super::news::News;
use super::{WorkflowOrchestration, children, options};
use crate::activities::Kit;
use crate::codec;
use crate::message::{Activity, Call, Closed, Ended, Gather, Handed, Report, ShapeNode};

pub(super) type Context = WorkflowContext<WorkflowOrchestration>;

impl<'a> Driver<'a> {
    pub(super) fn begin(&mut self, at: Target) {
        let token = WorkflowCancellationToken::new();
        let spec = self.shape(at).clone();
        let context = self.context;
        let call = self.call_of(at);
        // A loop is taken up when its list is there (`open_loop`): a stop before that finds its items first.
        let begun_before = spec.kind.manner() != Manner::Loops && self.machine.take_up(at);
        if let (0, Some(failed)) = (at.iteration, self.collecting.remove(&at.node)) {
            self.calling.insert(at, token);
            let gather = Gather { hold: self.hold, node: at.node, failed };
            let gathering = context.execute_local_activity(Kit::gather, gather, options::surely());
            return self.news.push(gathering.map(move |it| news_of(at, it)).boxed_local());
        }
        let news = match (spec.kind.manner(), spec.activity.clone()) {
            (Manner::Waits, _) => {
                self.waiting.insert(at, token.clone());
                wait(context, at, call, token).boxed_local()
            }
            (Manner::Asks, None) => {
                self.waiting.insert(at, token);
                let asking = context.execute_local_activity(Kit::node, call, options::surely());
                asking.map(move |it| news_of(at, it)).boxed_local()
            }
            (Manner::Asks, Some(activity)) => {
                self.calling.insert(at, token.clone());
                hand_out(context, at, call, spec, activity, self.deadline, token).boxed_local()
            }
            (Manner::Spawns, _) => {
                self.calling.insert(at, token.clone());
                children::child(context, at, call, token, begun_before).boxed_local()
            }
            (Manner::Calls, _) if !spec.local => {
                self.calling.insert(at, token.clone());
                let options = options::node(&spec, at.iteration, self.heartbeat, &token);
                let calling = context.execute_activity(Kit::node, call.clone(), options);
                let calling = calling.map(move |it| news_of(at, it)).boxed_local();
                if spec.once { once(context, at, call, token, calling).boxed_local() } else { calling }
            }
            (Manner::Calls | Manner::Computes | Manner::Loops, _) => {
                self.calling.insert(at, token.clone());
                let options = options::local_node(&spec, &token);
                let calling = context.execute_local_activity(Kit::node, call.clone(), options);
                let calling = calling.map(move |it| news_of(at, it)).boxed_local();
                if spec.once { once(context, at, call, token, calling).boxed_local() } else { calling }
            }
        };
        self.news.push(news);
    }

    /// What an activity is asked to perform.
    pub(super) fn call_of(&self, at: Target) -> Call {
        Call { hold: self.hold, node: at.node, iteration: at.iteration, closed: None, attends: None }
    }
}

/// Notes the wait, and waits.
fn wait(context: &Context, at: Target, call: Call, token: WorkflowCancellationToken) -> impl Future<Output = News<'_>> {
    let noting = context.execute_local_activity(Kit::node, call, options::surely());
    async move {
        match noting.await {
            Ok(Ended::Waiting { ms }) => match context.timer(options::timer(Duration::from_millis(ms), &token)).await {
                TimerResult::Fired => News::Waited(at),
                TimerResult::Cancelled => News::Aborted(at),
            },
            other => news_of(at, other),
        }
    }
}

/// Has something performed that may be performed at most once: if nothing is told of that, its row says whether it had
/// begun.
async fn once<'a>(
    context: &'a Context,
    at: Target,
    call: Call,
    token: WorkflowCancellationToken,
    calling: LocalBoxFuture<'a, News<'a>>,
) -> News<'a> {
    match calling.await {
        News::Aborted(_) | News::Unperformed(_) => {
            let closed = Some(if token.is_cancelled() { Closed::Stopped } else { Closed::ByItself });
            news_of(at, context.execute_local_activity(Kit::node, Call { closed, ..call }, options::surely()).await)
        }
        told => told,
    }
}

/// Has a worker of the user's own do a task, and tells what came of it.
async fn hand_out(
    context: &Context,
    at: Target,
    call: Call,
    spec: ShapeNode,
    activity: Activity,
    longest: Duration,
    token: WorkflowCancellationToken,
) -> News<'_> {
    let Call { hold, node, iteration, .. } = call;
    let handed = match context.execute_local_activity(Kit::node, call, options::surely()).await {
        Ok(Ended::Handed(handed)) => *handed,
        other => return news_of(at, other),
    };
    let Handed { input, attempt, fence, limit_ms, lease_ms } = handed;
    let limit = limit_ms.map_or(longest, Duration::from_millis);
    let times = (limit, lease_ms.map(Duration::from_millis));
    let options = options::foreign(&spec, &activity, iteration, times, &token);
    let input = RawValue::new(vec![codec::plain(&input)]);
    let result = match context.execute_activity(UntypedActivity::new(activity.name), input, options).await {
        Ok(output) => read(output.payloads.first()),
        Err(error) if error.as_cancelled().is_some() => return News::Aborted(at),
        Err(error) => Err(failure_of(&error)),
    };
    let report = Report { hold, node, iteration, attempt, fence, result };
    news_of(at, context.execute_local_activity(Kit::report, report, options::surely()).await)
}

/// What a worker of the user's own answered: JSON, or nothing.
fn read(payload: Option<&Payload>) -> Result<Value, Failure> {
    match payload {
        None => Ok(Value::Null),
        Some(payload) if payload.data.is_empty() => Ok(Value::Null),
        Some(payload) => kernel::exact::read(&payload.data)
            .map_err(|_| Failure::new(Class::ValidationError, "the activity's result is not JSON")),
    }
}

/// How a worker of the user's own failed: in its own words, or because its time was up.
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

pub(super) fn news_of<'a>(at: Target, result: Result<Ended, ActivityExecutionError>) -> News<'a> {
    match result {
        Ok(ended) => News::Ended(at, ended),
        Err(error) if error.as_cancelled().is_some() => News::Aborted(at),
        Err(_) => News::Unperformed(at),
    }
}
