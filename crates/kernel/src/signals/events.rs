//! Every log event that may be relied on. Those of the source documents keep message and level.

use super::Event;
use super::Level::{Debug, Error, Info, Warn};

/// Each line becomes a constant and a row of `ALL`: none can be forgotten.
macro_rules! table {
    ($($constant:ident: $message:literal $level:expr, [$($field:literal),*], $help:literal;)*) => {
        $(pub const $constant: Event =
            Event { message: $message, level: $level, fields: &[$($field),*], help: $help };)*
        pub const ALL: &[Event] = &[$($constant),*];
    };
}

table! {
    PROCESSING: "Processing {} queue items" Debug, ["batch_size"],
        "A turn claimed something. An empty queue logs nothing.";
    AT_CAPACITY: "Workspace at capacity" Info, ["workspace_id", "active_count", "limit"],
        "A workspace became full with items waiting; once per transition.";
    DISPATCHING: "Dispatching queue item" Info, ["queue_item_id", "definition_id"],
        "An item is about to be handed to the engine.";
    DISPATCHED: "Dispatched execution" Info, ["execution_id", "queue_item_id"],
        "The engine has it.";
    START_FAILED: "Failed to start {} workflow" Error, ["queue_item_id", "error"],
        "The engine refused a start, or did not answer clearly; the gap is the engine's name.";
    ITEM_ERROR: "Error processing queue item" Error, ["queue_item_id", "error", "attempt_count"],
        "What the engine answered could not be stored; the item keeps its claim and is taken over.";
    RECOVERED: "Recovered {} stale queue items" Info, ["recovered_count"],
        "Items of a claimer that is gone have a new one.";
    WORKSPACE_GONE: "Workspace not found" Warn, ["workspace_id", "queue_item_id"],
        "An item's workspace was deleted; the item ends FAILED.";
    DEFINITION_GONE: "Workflow definition not found" Warn, ["queue_item_id", "definition_id"],
        "An item's definition was deleted; the item ends FAILED.";
    EXECUTION_GONE: "Execution not found for retry" Warn, ["execution_id", "queue_item_id"],
        "An item has no execution: somebody deleted the row.";
    REGISTERED: "This process is registered" Info, ["process_id"],
        "The first heartbeat got through, under this id.";
    LAPSED: "This process gives its runs up and comes back under a new id" Warn, ["process_id", "reason"],
        "Its heartbeats did not get through in time.";
    FELL_SILENT: "A process fell silent; its runs are taken over" Warn, ["process_id"],
        "No heartbeat of it for process.runs_after_ms.";
    CLAIMS_NOTHING: "This process claims nothing" Warn, ["reason"],
        "Its claims go by another protocol than the database's: an older process still lives, or a newer release has \
         raised it.";
    RESUMING: "Resuming a run whose owner is gone" Info, ["execution_id", "deaths"],
        "A run goes on where its rows left it.";
}
