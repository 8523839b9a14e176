//! Children of a run: each a workflow of its own, started, attended to, and told to stop.
//!
//!     made by an activity ──▶ started ──▶ result        (this history started it)
//!                               └ there already ──▶ attended to: asked about now and then   (an earlier one did)
//!
//! Invariants
//! - A child that was started goes on when this history is continued as new: Temporal forgets whose it is, so the next history asks its
//!   row how it stands, and stops it by its id.
//! - How a child ended is in its row; what its workflow says is never looked at.
//! - A run that is to stop finds what an earlier history began, and stops it, before it ends.
//!
//! Not here: making the child and reading its row (`activities::children`).

use std::time::Duration;

use futures_util::FutureExt;
use kernel::definition::Manner;
use kernel::ids::ExecutionId;
use temporalio_sdk::{ChildWorkflowStartError, TimerResult, WorkflowCancellationToken};

use super::begin::{Context, news_of};
use super::drive::{At, Driver};
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
    /// Stops what an earlier history began: a child, or the items of a loop, which are found first. False: there is nothing of the kind.
    pub(super) fn stop_resumed(&mut self, at: At) -> bool {
        if !self.resumed.remove(&at) {
            return false;
        }
        if self.shape(at).kind.manner() == Manner::Loops {
            if !self.ready.contains(&at) {
                self.ready.push_back(at);
            }
            return true;
        }
        self.ready.retain(|ready| *ready != at);
        let token = WorkflowCancellationToken::new();
        match self.overdue {
            true => token.cancel_with_reason(DEADLINE),
            false => token.cancel(),
        }
        self.calling.insert(at, token.clone());
        let call = Call { attends: Some(Closed::Stopped), ..self.call_of(at) };
        self.news.push(find_and_stop(self.context, at, call, token).boxed_local());
        true
    }
}

/// Makes a child, runs it as a workflow of its own, and has its node settled by what its row says then.
pub(super) async fn child(
    context: &Context,
    at: At,
    call: Call,
    outlived: bool,
    token: WorkflowCancellationToken,
) -> News<'_> {
    let input: Input = match context.execute_local_activity(Kit::node, call.clone(), options::surely()).await {
        Ok(Ended::Child(input)) => *input,
        other => return news_of(at, other),
    };
    let execution = input.execution_id;
    let options = options::child(execution, outlived, &token);
    match context.start_child_workflow(WorkflowOrchestration::run, input, options).await {
        Ok(started) => {
            let ended = async move {
                // How it ended is in its row.
                drop(started.result().await);
                closed(context, at, call, &token).await
            };
            if outlived { News::Attached(at, ended.boxed_local()) } else { ended.await }
        }
        Err(ChildWorkflowStartError::Cancelled(_)) => closed(context, at, call, &token).await,
        // It was started before, and not by this history: its row is looked at until it has ended.
        Err(_) if outlived => News::Attached(at, attend(context, at, call, token, execution).boxed_local()),
        Err(_) => match context.timer(options::timer(POLL, &token)).await {
            TimerResult::Fired => News::Due(at, 0),
            TimerResult::Cancelled => News::Aborted(at),
        },
    }
}

/// The workflow of a child is closed: its node is settled.
async fn closed<'a>(context: &'a Context, at: At, call: Call, token: &WorkflowCancellationToken) -> News<'a> {
    let closed = Some(if token.is_cancelled() { Closed::Stopped } else { Closed::ByItself });
    news_of(at, context.execute_local_activity(Kit::node, Call { closed, ..call }, options::surely()).await)
}

/// Asks about a child that an earlier history started until it has ended, and tells it to stop when its parent does.
async fn attend(
    context: &Context,
    at: At,
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
async fn find_and_stop(context: &Context, at: At, call: Call, token: WorkflowCancellationToken) -> News<'_> {
    match context.execute_local_activity(Kit::node, call.clone(), options::surely()).await {
        Ok(Ended::Child(input)) => attend(context, at, call, token, input.execution_id).await,
        other => news_of(at, other),
    }
}
