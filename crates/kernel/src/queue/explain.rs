//! Why a queue item waits.
//!
//! Invariants
//! - The possible reasons are checked in a fixed order. The first reason that applies is the reason of the item, so
//!   every pending item has a reason. The item cannot start before that reason has gone away.
//! - A queue position beyond 1,000 is reported as "more than 1,000", because counting further costs too much.
//!
//! Not here: reading the facts from the database (`store::queue`).

use serde::{Deserialize, Serialize};

use crate::ids::ExecutionId;
use crate::queue::{Stage, Status};

/// The highest queue position that is reported exactly.
pub const MAX_POSITION: i32 = 1_000;

/// The state of an item and of the limits that apply to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub status: Status,
    pub stage: Stage,
    pub available_at: String,
    pub attempts: u32,
    pub last_error: Option<String>,
    pub workspace_paused: bool,
    pub workspace_deleted: bool,
    pub workspace_running: i32,
    pub workspace_limit: i32,
    pub definition_paused: bool,
    pub definition_deleted: bool,
    pub definition_running: i32,
    pub definition_limit: Option<i32>,
    pub key: Option<String>,
    pub key_running: i32,
    pub key_limit: i32,
    /// How many ready items of the workspace are ahead, counted up to `MAX_POSITION` + 1.
    pub ahead: Option<i32>,
    /// A few of the executions that use up the limit that the item waits for, the oldest first.
    pub held_by: Vec<ExecutionId>,
    /// Has a worker begun the execution?
    pub begun: bool,
    /// Can the engine start executions now?
    pub engine: EngineState,
    /// Why the external engine makes no progress with the execution; `None` if it makes progress.
    pub stuck: Option<RunProblem>,
}

/// Why an external engine makes no progress with a run until an operator helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunProblem {
    /// The worker fails at each attempt to continue the run.
    WorkFails(String),
    /// No worker polls for this run.
    NoWorker(String),
}

/// Whether the engine accepts starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineState {
    #[default]
    Available,
    /// The engine is disabled by configuration.
    Off,
    /// The engine runs as many executions as its limit allows.
    Full,
    Unavailable {
        since: String,
        error: String,
    },
    /// Only one process may dispatch at a time (`dispatch.exclusive`), and no living process dispatches now.
    NoDispatcher {
        error: String,
    },
}

/// The reason an item is not running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
// Fields are renamed one by one: the OpenAPI generator does not support rename_all_fields.
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Waiting {
    WorkspaceDeleted,
    DefinitionDeleted,
    WorkspacePaused,
    DefinitionPaused,
    DelayedUntil {
        #[serde(rename = "availableAt")]
        #[cfg_attr(feature = "schema", schema(format = DateTime))]
        available_at: String,
    },
    /// The engine refused the start, and there will be another attempt.
    BackingOff {
        #[serde(rename = "nextAttemptAt")]
        #[cfg_attr(feature = "schema", schema(format = DateTime))]
        next_attempt_at: String,
        attempts: u32,
        error: String,
    },
    EngineOff,
    EngineUnavailable {
        #[serde(rename = "unavailableSinceAt")]
        #[cfg_attr(feature = "schema", schema(format = DateTime))]
        unavailable_since_at: String,
        error: String,
    },
    /// No process dispatches items now.
    NoDispatcher {
        error: String,
    },
    KeyFull {
        #[serde(rename = "concurrencyKey")]
        concurrency_key: String,
        running: i32,
        limit: i32,
        #[serde(default, rename = "heldByExecutionIds")]
        held_by: Vec<ExecutionId>,
    },
    DefinitionFull {
        running: i32,
        limit: i32,
        #[serde(default, rename = "heldByExecutionIds")]
        held_by: Vec<ExecutionId>,
    },
    WorkspaceFull {
        running: i32,
        limit: i32,
        #[serde(default, rename = "heldByExecutionIds")]
        held_by: Vec<ExecutionId>,
    },
    EngineFull,
    /// Nothing blocks the item; it waits for its turn.
    Turn,
    /// The item was sent to the engine, and no worker has started it yet.
    Starting,
    /// The execution runs on an external engine, whose workers fail at each attempt.
    Stuck {
        error: String,
    },
    /// The execution was sent to an external engine, and no worker polls for it.
    NoWorker {
        error: String,
    },
}

/// Why an item waits; `None` if its execution runs or has ended.
pub fn explain(facts: &Facts) -> Option<Waiting> {
    match facts.status {
        Status::Pending => Some(waiting(facts)),
        // The engine may become unavailable after the claim. The item then keeps its claim and its slot.
        Status::Claimed => Some(unavailable(&facts.engine).unwrap_or(Waiting::Starting)),
        Status::Dispatched if let Some(stuck) = &facts.stuck => Some(match stuck.clone() {
            RunProblem::WorkFails(error) => Waiting::Stuck { error },
            RunProblem::NoWorker(error) => Waiting::NoWorker { error },
        }),
        Status::Dispatched if !facts.begun => Some(Waiting::Starting),
        Status::Dispatched | Status::Failed | Status::Gone => None,
    }
}

/// The queue position of a ready item: 1 is next. `None` for an item that waits for something other than its turn.
pub fn position(facts: &Facts) -> Option<i32> {
    (facts.status == Status::Pending).then_some(facts.ahead).flatten().map(|ahead| ahead + 1)
}

fn waiting(facts: &Facts) -> Waiting {
    let full = facts.workspace_running >= facts.workspace_limit;
    match facts.stage {
        _ if facts.workspace_deleted => Waiting::WorkspaceDeleted,
        _ if facts.definition_deleted => Waiting::DefinitionDeleted,
        _ if facts.workspace_paused => Waiting::WorkspacePaused,
        _ if facts.definition_paused => Waiting::DefinitionPaused,
        Stage::Delayed if facts.attempts > 0 => Waiting::BackingOff {
            next_attempt_at: facts.available_at.clone(),
            attempts: facts.attempts,
            error: facts.last_error.clone().unwrap_or_default(),
        },
        Stage::Delayed => Waiting::DelayedUntil { available_at: facts.available_at.clone() },
        _ if facts.engine == EngineState::Off => Waiting::EngineOff,
        _ if let Some(unavailable) = unavailable(&facts.engine) => unavailable,
        Stage::WaitsForKey => Waiting::KeyFull {
            concurrency_key: facts.key.clone().unwrap_or_default(),
            running: facts.key_running,
            limit: facts.key_limit,
            held_by: facts.held_by.clone(),
        },
        Stage::WaitsForDefinition if let Some(limit) = facts.definition_limit => {
            Waiting::DefinitionFull { running: facts.definition_running, limit, held_by: facts.held_by.clone() }
        }
        _ if full => Waiting::WorkspaceFull {
            running: facts.workspace_running,
            limit: facts.workspace_limit,
            held_by: facts.held_by.clone(),
        },
        _ if facts.engine == EngineState::Full => Waiting::EngineFull,
        _ => Waiting::Turn,
    }
}

fn unavailable(engine: &EngineState) -> Option<Waiting> {
    match engine {
        EngineState::Unavailable { since, error } => {
            Some(Waiting::EngineUnavailable { unavailable_since_at: since.clone(), error: error.clone() })
        }
        EngineState::NoDispatcher { error } => Some(Waiting::NoDispatcher { error: error.clone() }),
        EngineState::Available | EngineState::Off | EngineState::Full => None,
    }
}

impl Waiting {
    /// The reason as a sentence. The API and the CLI show the same text.
    pub fn message(&self) -> String {
        match self {
            Waiting::WorkspaceDeleted => "its workspace was deleted, so the execution will be marked FAILED".to_owned(),
            Waiting::DefinitionDeleted => {
                "its definition was deleted, so the execution will be marked FAILED".to_owned()
            }
            Waiting::WorkspacePaused => "its workspace is paused".to_owned(),
            Waiting::DefinitionPaused => "its definition is paused".to_owned(),
            Waiting::DelayedUntil { available_at } => {
                format!("it was scheduled to start no earlier than {available_at}")
            }
            Waiting::BackingOff { next_attempt_at, attempts, error } => {
                format!("the engine refused the start {attempts} time(s); next attempt at {next_attempt_at}: {error}")
            }
            Waiting::EngineOff => "the workflow engine is disabled (workflow.engine.enabled = false)".to_owned(),
            Waiting::EngineUnavailable { unavailable_since_at, error } => {
                format!("the engine has been unavailable since {unavailable_since_at}: {error}")
            }
            Waiting::NoDispatcher { error } => format!("no process dispatches items now: {error}"),
            Waiting::KeyFull { concurrency_key, running, limit, .. } => {
                format!("its concurrency key {concurrency_key:?} is full: {running} of {limit} executions are running")
            }
            Waiting::DefinitionFull { running, limit, .. } => {
                format!("its definition is full: {running} of {limit} executions are running")
            }
            Waiting::WorkspaceFull { running, limit, .. } => {
                format!("the workspace is full: {running} of {limit} executions are running")
            }
            Waiting::EngineFull => "the engine is full: it runs as many executions as it can".to_owned(),
            Waiting::Turn => "a slot is free, and it starts when its turn comes".to_owned(),
            Waiting::Stuck { error } => format!("the engine makes no progress with it: {error}"),
            Waiting::NoWorker { error } => format!("no worker polls for it: {error}"),
            Waiting::Starting => "it was sent to the engine, and no worker has started it yet".to_owned(),
        }
    }
}
