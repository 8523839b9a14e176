//! Children of a run: each a workflow of its own, started, attended to, and told to stop.
//!
//!     made by an activity ──▶ started ──▶ result        (this history started it)
//!                               └ there already ──▶ attended to: asked about now and then   (an earlier one did)
//!
//! Invariants
//! - A child that was started goes on when this history is continued as new: Temporal forgets whose it is, so the next
//!   history asks its row how it stands, and stops it by its id.
//! - How a child ended is in its row; what its workflow says is never looked at.
//! - A run that is to stop finds what an earlier history began, and stops it, before it ends.
//!
//! Not here: making the child and reading its row (`activities::children`).

use std::time::Duration;

use futures_util::FutureExt;
use kernel::definition::Manner;
use kernel::ids::ExecutionId;
use kernel::orchestration::Target;
use kernel::run::Stop;
use temporalio_sdk::{ChildWorkflowStartError, TimerResult, WorkflowCancellationToken};

use super::begin::{Context, news_of};
use super::drive::Driver;
use super::news::{DEADLINE, News};
use super::{WorkflowOrchestration, options};
use crate::activities::Kit;
use crate::message::{Call, Closed, Ended, Input};
use crate::start::workflow_id;

/// How soon a child that an earlier history started is asked about, and how long it is left alone at most.
const POLL: Duration = Duration::from_secs(5);
const LONGEST_POLL: Duration = Duration::from_secs(60);
/// The same for one that was told to stop.
const STOPPING_POLL: Duration = Duration::from_secs(1);

impl Driver<'_> {
    /// What an earlier history began is found first, to be stopped: the items of a loop, or a child.
    pub(super) fn find_first(&mut self, at: Target) {
        if self.shape(at).kind.manner() == Manner::Loops {
            // One that is being opened goes on: its items come with its list.
            if !self.ready.contains(&at) && !self.calling.contains_key(&at) {
                self.ready.push_back(at);
            }
            return;
        }
        self.machine.take_up(at);
        self.ready.retain(|ready| *ready != at);
        let token = WorkflowCancellationToken::new();
        self.cancel_child(&token);
        self.calling.insert(at, token.clone());
        let call = Call { attends: Some(Closed::Stopped), ..self.call_of(at) };
        self.news.push(find_and_stop(self.context, at, call, token).boxed_local());
    }

    /// A child is told why it ends.
    pub(super) fn cancel_child(&self, token: &WorkflowCancellationToken) {
        match self.machine.stop() {
            Some(Stop::Deadline) => token.cancel_with_reason(DEADLINE),
            _ => token.cancel(),
        }
    }
}

/// Makes a child, runs it as a workflow of its own, and has its node settled by what its row says then. One whose node
/// was begun by an earlier history may run already.
pub(super) async fn child(
    context: &Context,
    at: Target,
    call: Call,
    token: WorkflowCancellationToken,
    begun_before: bool,
) -> News<'_> {
    let input: Input = match context.execute_local_activity(Kit::node, call.clone(), options::surely()).await {
        Ok(Ended::Child(input)) => *input,
        other => return news_of(at, other),
    };
    let execution = input.execution_id;
    let options = options::child(execution, &token);
    match context.start_child_workflow(WorkflowOrchestration::run, input, options).await {
        Ok(started) => {
            let ended = async move {
                // How it ended is in its row.
                drop(started.result().await);
                closed(context, at, call, &token).await
            };
            News::Attached(at, ended.boxed_local())
        }
        Err(ChildWorkflowStartError::Cancelled(_)) if !begun_before => closed(context, at, call, &token).await,
        // It was started before, and not by this history: its row is looked at until it has ended.
        Err(_) => News::Attached(at, attend(context, at, call, token, execution).boxed_local()),
    }
}

/// The workflow of a child is closed: its node is settled.
async fn closed<'a>(context: &'a Context, at: Target, call: Call, token: &WorkflowCancellationToken) -> News<'a> {
    let closed = Some(if token.is_cancelled() { Closed::Stopped } else { Closed::ByItself });
    news_of(at, context.execute_local_activity(Kit::node, Call { closed, ..call }, options::surely()).await)
}

/// Asks about a child that an earlier history started until it has ended, and tells it to stop when its parent does.
async fn attend(
    context: &Context,
    at: Target,
    call: Call,
    token: WorkflowCancellationToken,
    execution: ExecutionId,
) -> News<'_> {
    let (mut wait, mut told) = (POLL, false);
    loop {
        if token.is_cancelled() && !told {
            (wait, told) = (STOPPING_POLL, true);
            let child = context.external_workflow(workflow_id(execution), None);
            // One that is closed already cannot be told: its row says how it ended.
            drop(child.cancel(token.reason()).await);
        }
        // Once told, nothing cuts the wait short.
        let pause = if told { WorkflowCancellationToken::new() } else { token.clone() };
        if matches!(context.timer(options::timer(wait, &pause)).await, TimerResult::Cancelled) {
            continue;
        }
        wait = wait.saturating_mul(2).min(LONGEST_POLL);
        let attends = Some(if told { Closed::Stopped } else { Closed::ByItself });
        let asked = Call { attends, ..call.clone() };
        match context.execute_local_activity(Kit::node, asked, options::surely()).await {
            Ok(Ended::Child(_)) => {}
            other => return news_of(at, other),
        }
    }
}

/// Finds a child that is to stop, and stops it.
async fn find_and_stop(context: &Context, at: Target, call: Call, token: WorkflowCancellationToken) -> News<'_> {
    match context.execute_local_activity(Kit::node, call.clone(), options::surely()).await {
        Ok(Ended::Child(input)) => attend(context, at, call, token, input.execution_id).await,
        other => news_of(at, other),
    }
}
