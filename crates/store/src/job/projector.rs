//! The jobs that the projector claims: jobs whose binding has a definition. The projector starts an execution for each.
//!
//! Invariants
//! - Claiming a job and enqueueing its execution are one transaction, with an idempotency key of (job, `retry_count`).
//!   A crash before the commit leaves the job pending. After the commit, the job ends when its execution ends.
//! - An execution runs the version against which its input was checked. If another version was published since, the job
//!   stays unchanged.
//!
//! Not here: what to do with a job (`kernel::event::binding`), when to poll (`server::job::projector`).

use std::collections::BTreeMap;

use kernel::event::DomainEvent;
use kernel::event::binding::Rule;
use kernel::ids::{DefinitionId, ExecutionId, VersionId, WorkspaceId};
use kernel::queue::PRIORITY_STEP_MS;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::json::Json;
use crate::sql::sql;
use crate::{Error, Store};

/// A pending job whose binding has a definition.
#[derive(Clone, Debug)]
pub struct DueJob {
    pub id: Uuid,
    pub retry_count: i32,
    pub event: DomainEvent,
    pub definition: DefinitionId,
    /// The workspace in which the job's execution runs.
    pub workspace: WorkspaceId,
    pub rule: Rule,
}

/// What to do with a due job.
#[derive(Clone, Debug)]
pub struct JobStart {
    pub job: Uuid,
    pub retry_count: i32,
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    /// The published version against which the input was checked; None if it was not checked.
    pub published: Option<VersionId>,
    pub action: JobAction,
}

#[derive(Clone, Debug)]
pub enum JobAction {
    Start {
        input: Value,
        trigger: Value,
        workflow_id: Option<String>,
    },
    Skip,
    /// The job cannot begin, for this reason.
    Fail(String),
}

/// The result for one due job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStartOutcome {
    Started(ExecutionId),
    Skipped,
    Failed,
    /// The workspace's backlog limit is reached. A later poll tries the jobs of this binding again.
    BacklogFull,
    /// Another version was published since the input was checked; the job is unchanged.
    VersionChanged,
    /// Another process claimed the job.
    Lost,
}

impl Store {
    /// Pending jobs whose binding has a definition.
    pub async fn due_jobs(&self, limit: i32) -> Result<Vec<DueJob>, Error> {
        let rows = self.query(sql!("workflow_queue_projection/due"), &[&limit]).await?;
        rows.iter().map(due_of).collect()
    }

    /// Claims due jobs and enqueues their executions, in one transaction. Results are in the order of the jobs.
    pub async fn begin_jobs(
        &self,
        begins: &[JobStart],
        worker: &str,
        max_backlog: Option<i32>,
    ) -> Result<Vec<JobStartOutcome>, Error> {
        let ids: Vec<Uuid> = begins.iter().map(|begin| begin.job).collect();
        let retries: Vec<i32> = begins.iter().map(|begin| begin.retry_count).collect();
        let executions: Vec<Uuid> = begins.iter().map(|begin| begin.execution.0).collect();
        let workspaces: Vec<Uuid> = begins.iter().map(|begin| begin.workspace.0).collect();
        let definitions: Vec<Uuid> = begins.iter().map(|begin| begin.definition.0).collect();
        let versions: Vec<Option<Uuid>> = begins.iter().map(|begin| begin.published.map(|version| version.0)).collect();
        let (mut inputs, mut triggers, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let (mut skips, mut errors) = (Vec::new(), Vec::new());
        for begin in begins {
            let (input, trigger, name) = match &begin.action {
                JobAction::Start { input, trigger, workflow_id } => {
                    (Some(input), Some(trigger), workflow_id.as_deref())
                }
                JobAction::Skip | JobAction::Fail(_) => (None, None, None),
            };
            inputs.push(input);
            triggers.push(trigger);
            names.push(name);
            skips.push(matches!(begin.action, JobAction::Skip));
            errors.push(if let JobAction::Fail(why) = &begin.action { Some(why.as_str()) } else { None });
        }
        let actor = format!("worker:{worker}");
        let rows = self
            .query(
                sql!("workflow_queue_projection/start"),
                &[
                    &ids,
                    &retries,
                    &executions,
                    &workspaces,
                    &definitions,
                    &versions,
                    &inputs,
                    &triggers,
                    &names,
                    &skips,
                    &errors,
                    &worker,
                    &actor,
                    &kernel::SEMANTICS,
                    &PRIORITY_STEP_MS,
                    &max_backlog,
                ],
            )
            .await?;
        let answers = rows.iter().map(|row| Ok((row.try_get("id")?, begun(row)?)));
        let answers = answers.collect::<Result<BTreeMap<Uuid, JobStartOutcome>, Error>>()?;
        let missing = || Error::Corrupt("starting a job returned no row".to_owned());
        ids.iter().map(|id| answers.get(id).copied().ok_or_else(missing)).collect()
    }
}

fn begun(row: &Row) -> Result<JobStartOutcome, Error> {
    let execution = row.try_get::<_, Option<Uuid>>("execution")?.map(ExecutionId);
    Ok(match (row.try_get("answer")?, execution) {
        ("started", Some(execution)) => JobStartOutcome::Started(execution),
        ("skipped", _) => JobStartOutcome::Skipped,
        ("failed", _) => JobStartOutcome::Failed,
        ("backlog_full", _) => JobStartOutcome::BacklogFull,
        ("version_changed", _) => JobStartOutcome::VersionChanged,
        ("lost", _) => JobStartOutcome::Lost,
        (other, _) => return Err(Error::Corrupt(format!("starting a job returned the unknown result {other}"))),
    })
}

fn due_of(row: &Row) -> Result<DueJob, Error> {
    Ok(DueJob {
        id: row.try_get("id")?,
        retry_count: row.try_get("retries")?,
        event: DomainEvent {
            id: row.try_get("event_id")?,
            kind: row.try_get("event_type")?,
            data: row.try_get::<_, Json>("event_data")?.0,
            metadata: row.try_get::<_, Json>("event_metadata")?.0,
            stream_id: row.try_get("stream_id")?,
            stream_type: row.try_get("stream_type")?,
            stream_version: row.try_get("stream_version")?,
            created_at: row.try_get("created")?,
        },
        definition: DefinitionId(row.try_get("definition")?),
        workspace: WorkspaceId(row.try_get("definition_workspace")?),
        rule: Rule {
            event_type: row.try_get("event_type")?,
            filter: row.try_get("filter")?,
            input: row.try_get("input")?,
            workflow_id: row.try_get("workflow_id")?,
            lease_s: None,
        },
    })
}
