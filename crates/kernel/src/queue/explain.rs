//! Why an item waits, in the order in which the reasons bind.
//!
//! Invariants
//! - Every item has an answer; the first reason that holds is the one that would have to change.
//! - Places in line beyond a thousand are "more than 1,000": nobody pays for counting further.
//!
//! Not here: gathering the facts (`store::queue`), wording for people (`message`, used by API and CLI alike).

use serde::{Deserialize, Serialize};

use crate::ids::ExecutionId;
use crate::queue::{Stage, Status};

/// How far places in line are counted.
pub const MAX_POSITION: i32 = 1_000;

/// What is known of an item and what bounds it.
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
    /// How many ready items of the workspace go first, counted to one more than `MAX_POSITION`.
    pub ahead: Option<i32>,
    /// A few of those that hold what it waits for, the longest first.
    pub held_by: Vec<ExecutionId>,
    /// The execution has begun.
    pub begun: bool,
    /// What keeps the service from starting anything at all.
    pub engine: EngineState,
    /// Why the engine does not go on with it, if it does not.
    pub stuck: Option<Stuck>,
}

/// Why an engine elsewhere does not go on with a run, and will not by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Whoever does its work fails to.
    Failing(String),
    /// Nobody is there to do it.
    Idle(String),
}

/// Whether the engine takes starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineState {
    #[default]
    Takes,
    /// Turned off by configuration: items wait.
    Off,
    /// It holds as many runs as it can.
    Full,
    Unavailable {
        since: String,
        error: String,
    },
    /// With one dispatcher at a time: no living process of ours is it.
    NoDispatcher {
        error: String,
    },
}

/// The reason an item is not running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
// Fields are renamed one by one: the API's description does not know rename_all_fields.
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Waiting {
    WorkspaceDeleted,
    DefinitionDeleted,
    WorkspacePaused,
    DefinitionPaused,
    DelayedUntil {
        at: String,
    },
    BackingOff {
        until: String,
        attempts: u32,
        error: String,
    },
    EngineOff,
    EngineUnavailable {
        since: String,
        error: String,
    },
    /// No process dispatches now.
    NoDispatcher {
        error: String,
    },
    KeyFull {
        key: String,
        running: i32,
        limit: i32,
        #[serde(default, rename = "heldBy")]
        held_by: Vec<ExecutionId>,
    },
    DefinitionFull {
        running: i32,
        limit: i32,
        #[serde(default, rename = "heldBy")]
        held_by: Vec<ExecutionId>,
    },
    WorkspaceFull {
        running: i32,
        limit: i32,
        #[serde(default, rename = "heldBy")]
        held_by: Vec<ExecutionId>,
    },
    EngineFull,
    /// Nothing but its turn.
    Turn,
    /// It was handed to the engine, and no worker has picked it up yet.
    Starting,
    /// It runs in an engine elsewhere that cannot go on with it.
    Stuck {
        error: String,
    },
    /// It was handed to an engine elsewhere, and there is no worker to go on with it.
    NoWorker {
        error: String,
    },
}

/// An item's place and why it is there; nothing for one that runs or has ended.
pub fn explain(facts: &Facts) -> Option<Waiting> {
    match facts.status {
        Status::Pending => Some(waiting(facts)),
        // It keeps its claim and its slot while the engine is out of reach.
        Status::Claimed => Some(unavailable(&facts.engine).unwrap_or(Waiting::Starting)),
        Status::Dispatched if let Some(stuck) = &facts.stuck => Some(match stuck.clone() {
            Stuck::Failing(error) => Waiting::Stuck { error },
            Stuck::Idle(error) => Waiting::NoWorker { error },
        }),
        Status::Dispatched if !facts.begun => Some(Waiting::Starting),
        Status::Dispatched | Status::Failed | Status::Gone => None,
    }
}

/// The place in line of a ready item: 1 is next. Nothing for one that waits for something else.
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
            until: facts.available_at.clone(),
            attempts: facts.attempts,
            error: facts.last_error.clone().unwrap_or_default(),
        },
        Stage::Delayed => Waiting::DelayedUntil { at: facts.available_at.clone() },
        _ if facts.engine == EngineState::Off => Waiting::EngineOff,
        _ if let Some(unavailable) = unavailable(&facts.engine) => unavailable,
        Stage::WaitsForKey => Waiting::KeyFull {
            key: facts.key.clone().unwrap_or_default(),
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
            Some(Waiting::EngineUnavailable { since: since.clone(), error: error.clone() })
        }
        EngineState::NoDispatcher { error } => Some(Waiting::NoDispatcher { error: error.clone() }),
        EngineState::Takes | EngineState::Off | EngineState::Full => None,
    }
}

impl Waiting {
    /// The reason as a sentence, the same wherever it is shown.
    pub fn message(&self) -> String {
        match self {
            Waiting::WorkspaceDeleted => "its workspace was deleted; it will be failed".to_owned(),
            Waiting::DefinitionDeleted => "its definition was deleted; it will be failed".to_owned(),
            Waiting::WorkspacePaused => "its workspace is paused".to_owned(),
            Waiting::DefinitionPaused => "its definition is paused".to_owned(),
            Waiting::DelayedUntil { at } => format!("it is not to start before {at}"),
            Waiting::BackingOff { until, attempts, error } => {
                format!("the engine refused it {attempts} time(s), next try at {until}: {error}")
            }
            Waiting::EngineOff => "the workflow engine is turned off (workflow.engine.enabled = false)".to_owned(),
            Waiting::EngineUnavailable { since, error } => {
                format!("the engine has been unavailable since {since}: {error}")
            }
            Waiting::NoDispatcher { error } => format!("no process dispatches now: {error}"),
            Waiting::KeyFull { key, running, limit, .. } => {
                format!("{running} of {limit} executions with concurrency key {key:?} are running")
            }
            Waiting::DefinitionFull { running, limit, .. } => {
                format!("{running} of {limit} executions of its definition are running")
            }
            Waiting::WorkspaceFull { running, limit, .. } => {
                format!("the workspace is full: {running} of {limit} executions are running")
            }
            Waiting::EngineFull => "the engine holds as many runs as it can".to_owned(),
            Waiting::Turn => "it is about to start".to_owned(),
            Waiting::Stuck { error } => format!("the engine cannot go on with it: {error}"),
            Waiting::NoWorker { error } => format!("there is no worker to go on with it: {error}"),
            Waiting::Starting => "it was handed to the engine and no worker has picked it up yet".to_owned(),
        }
    }
}
