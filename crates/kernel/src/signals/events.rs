//! Every log event that is a public contract. The source documents (`docs/explanation/source-documents.md`) fix the
//! messages and levels of some of them.

use super::Event;
use super::Level::{Debug, Error, Info, Warn};

/// Makes a constant and a row of `ALL` from each line, so that `ALL` is complete.
macro_rules! table {
    ($($constant:ident: $message:literal $level:expr, [$($field:literal),*], $help:literal;)*) => {
        $(pub const $constant: Event =
            Event { message: $message, level: $level, fields: &[$($field),*], help: $help };)*
        pub const ALL: &[Event] = &[$($constant),*];
    };
}

table! {
    PROCESSING: "Processing {} queue items" Debug, ["batch_size"],
        "A dispatcher pass claimed items. A pass that claims nothing logs nothing.";
    AT_CAPACITY: "Workspace at capacity" Info, ["workspace_id", "active_count", "limit"],
        "A workspace used its last slot while more of its items waited. Logged once until a slot is free again.";
    DISPATCHING: "Dispatching queue item" Info, ["queue_item_id", "definition_id"],
        "The dispatcher is about to hand the item to the engine.";
    DISPATCHED: "Dispatched execution" Info, ["execution_id", "queue_item_id"],
        "The engine has accepted the execution.";
    START_FAILED: "Failed to start {} workflow" Error, ["queue_item_id", "error"],
        "The engine refused the start or gave no clear answer. `{}` is the name of the engine.";
    ITEM_ERROR: "Error processing queue item" Error, ["queue_item_id", "error", "attempt_count"],
        "The engine's answer could not be stored. The item keeps its claim until a process takes it over.";
    RECOVERED: "Recovered {} stale queue items" Info, ["recovered_count"],
        "This process took over items whose claimer was dead or too slow.";
    WORKSPACE_GONE: "Workspace not found" Warn, ["workspace_id", "queue_item_id"],
        "The workspace of an item was deleted. The item ends FAILED.";
    DEFINITION_GONE: "Workflow definition not found" Warn, ["queue_item_id", "definition_id"],
        "The definition of an item was deleted. The item ends FAILED.";
    EXECUTION_GONE: "Execution not found for retry" Warn, ["execution_id", "queue_item_id"],
        "The execution of a queue item has no row: the row was deleted in the database, not by the service.";
    REGISTERED: "Process registered" Info, ["process_id"],
        "The first heartbeat under this id succeeded.";
    LEASE_EXPIRED: "Process lease expired; runs dropped" Warn, ["process_id", "reason"],
        "The heartbeats of this process failed for process.claim_lease_ms. It registers again under a new id. Other \
         processes resume its runs.";
    PROCESS_DEAD: "A process is dead; others take over its runs" Warn, ["process_id"],
        "The named process sent no heartbeat for process.run_lease_ms. If it still runs, look at its log and its \
         connection to the database.";
    CLAIMING_STOPPED: "Claiming stopped: another claim protocol is in force" Warn, ["reason"],
        "The database requires another claim protocol than this process uses: an older process is still alive, or a \
         newer release raised the protocol. The reason says what to do.";
    RUN_RESUMED: "Resuming a run of a dead process" Info, ["execution_id", "deaths"],
        "The run continues from its stored state. `deaths` counts the processes that died while they ran it.";
}
