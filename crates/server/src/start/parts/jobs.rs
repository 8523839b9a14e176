//! The parts that turn events and times into executions, in a process that dispatches.
//!
//! Not here: what they do (`projector`, `schedules`).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::{Parts, holder, host};
use crate::config::ms;
use crate::definition::inputs::{InputRules, Turn};
use crate::job::projector::Projector;
use crate::job::recovery::Recovery;
use crate::process::pass::repeat;
use crate::schedule::Schedules;

/// How long rings gather: many changes make one look.
const GATHER: Duration = Duration::from_millis(20);

impl Parts {
    /// Wakes our worker when jobs were changed by anybody, plain SQL included, and whoever waits for events and tasks.
    pub(super) fn spawn_bell(&self) -> Arc<Notify> {
        let (rung, jobs, stop) = (Arc::new(Notify::new()), Arc::clone(&self.jobs), self.stop.clone());
        let (bell, judged, offered) = (Arc::clone(&rung), Arc::clone(&self.judged), Arc::clone(&self.offered));
        self.tasks.spawn(async move {
            while tokio::select! { () = bell.notified() => true, () = stop.cancelled() => false } {
                offered.notify_waiters();
                tokio::time::sleep(GATHER).await;
                jobs.notify_one();
                judged.notify_one();
            }
        });
        rung
    }

    /// From events to executions.
    pub(super) fn spawn_projector(&self) {
        let poll = ms(self.settings.dispatch.poll_interval_ms);
        let projector = Projector {
            store: self.work.clone(),
            hints: self.hints.clone(),
            input_rules: InputRules::new(Turn::Service),
            worker: format!("{}-{}", host(), std::process::id()),
            max_backlog: self.settings.queue.max_backlog,
            max_generations: self.settings.workflow.max_generations,
        };
        let (stop, jobs) = (self.stop.clone(), Arc::clone(&self.jobs));
        self.tasks.spawn(async move { repeat("projector", poll, &jobs, &stop, || projector.pass()).await });
        let recovery = Recovery {
            store: self.work.clone(),
            retry_after: ms(self.settings.projection.retry_after_ms),
            holder: holder(),
            jobs: Arc::clone(&self.jobs),
        };
        self.spawn_loop("jobs", poll, Arc::new(recovery), |it| async move { it.pass().await });
    }

    /// From times to executions.
    pub(super) fn spawn_schedules(&self) {
        let poll = ms(self.settings.dispatch.poll_interval_ms);
        let schedules = Schedules {
            store: self.work.clone(),
            hints: self.hints.clone(),
            input_rules: InputRules::new(Turn::Service),
            max_backlog: self.settings.queue.max_backlog,
            page_from: std::sync::Mutex::default(),
        };
        let (stop, wake) = (self.stop.clone(), Arc::clone(&self.schedules));
        self.tasks.spawn(async move { repeat("schedules", poll, &wake, &stop, || schedules.pass()).await });
    }
}
