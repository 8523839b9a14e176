//! Jobs of our own worker: those whose binding has a definition.
//!
//! Invariants
//! - Claiming a job and enqueueing its execution are one transaction, keyed by (event, retry_count): dying before the
//!   commit leaves the job pending; after it, the execution's end is the job's.
//! - An execution runs the version that its input was judged by; if another is published by then, nothing is done.
//!
//! Not here: what is to become of a job (`kernel::event::binding`), when to look (`server::job::projector`).

use std::collections::BTreeMap;

use kernel::event::Event;
use kernel::event::binding::Rule;
use kernel::ids::{DefinitionId, ExecutionId, VersionId, WorkspaceId};
use kernel::queue::PRIORITY_STEP_MS;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::json::Json;
use crate::sql::sql;
use crate::{Error, Store};

/// A job that a definition of ours is to run.
#[derive(Clone, Debug)]
pub struct Due {
    pub id: Uuid,
    pub retry_count: i32,
    pub event: Event,
    pub definition: DefinitionId,
    /// Where it runs.
    pub workspace: WorkspaceId,
    pub rule: Rule,
}

/// What is to become of a due job.
#[derive(Clone, Debug)]
pub struct Begin {
    pub job: Uuid,
    pub retry_count: i32,
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    /// The published version that its input was judged by, if it was.
    pub published: Option<VersionId>,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Start {
        input: Value,
        trigger: Value,
        workflow_id: Option<String>,
    },
    Skip,
    /// It cannot begin: why.
    Fail(String),
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    Started(ExecutionId),
    Skipped,
    Failed,
    /// Its workspace's backlog is full: its binding is looked at again in a moment.
    Later,
    /// Another version is published than the one it was judged by; nothing was done.
    Moved,
    /// Somebody else took it.
    Lost,
}

impl Store {
    /// Jobs that wait for a definition of ours.
    pub async fn due_jobs(&self, limit: i32) -> Result<Vec<Due>, Error> {
        let rows = self.query(sql!("workflow_queue_projection/due"), &[&limit]).await?;
        rows.iter().map(due_of).collect()
    }

    /// Claims due jobs and enqueues what runs them, in one transaction; each is answered, in order.
    pub async fn begin_jobs(
        &self,
        begins: &[Begin],
        worker: &str,
        max_backlog: Option<i32>,
    ) -> Result<Vec<Begun>, Error> {
        let ids: Vec<Uuid> = begins.iter().map(|begin| begin.job).collect();
        let retries: Vec<i32> = begins.iter().map(|begin| begin.retry_count).collect();
        let executions: Vec<Uuid> = begins.iter().map(|begin| begin.execution.0).collect();
        let workspaces: Vec<Uuid> = begins.iter().map(|begin| begin.workspace.0).collect();
        let definitions: Vec<Uuid> = begins.iter().map(|begin| begin.definition.0).collect();
        let versions: Vec<Option<Uuid>> = begins.iter().map(|begin| begin.published.map(|version| version.0)).collect();
        let (mut inputs, mut triggers, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let (mut skips, mut errors) = (Vec::new(), Vec::new());
        for begin in begins {
            let (input, trigger, name) = match &begin.what {
                What::Start { input, trigger, workflow_id } => (Some(input), Some(trigger), workflow_id.as_deref()),
                What::Skip | What::Fail(_) => (None, None, None),
            };
            inputs.push(input);
            triggers.push(trigger);
            names.push(name);
            skips.push(matches!(begin.what, What::Skip));
            errors.push(if let What::Fail(why) = &begin.what { Some(why.as_str()) } else { None });
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
        let answers = answers.collect::<Result<BTreeMap<Uuid, Begun>, Error>>()?;
        let missing = || Error::Corrupt("the start of a job was not answered".to_owned());
        ids.iter().map(|id| answers.get(id).copied().ok_or_else(missing)).collect()
    }
}

fn begun(row: &Row) -> Result<Begun, Error> {
    let execution = row.try_get::<_, Option<Uuid>>("execution")?.map(ExecutionId);
    Ok(match (row.try_get("answer")?, execution) {
        ("started", Some(execution)) => Begun::Started(execution),
        ("skipped", _) => Begun::Skipped,
        ("failed", _) => Begun::Failed,
        ("later", _) => Begun::Later,
        ("moved", _) => Begun::Moved,
        ("lost", _) => Begun::Lost,
        (other, _) => return Err(Error::Corrupt(format!("the start of a job answered {other}"))),
    })
}

fn due_of(row: &Row) -> Result<Due, Error> {
    Ok(Due {
        id: row.try_get("id")?,
        retry_count: row.try_get("retries")?,
        event: Event {
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
