//! Every span. A batch statement is one span: claiming marks items claimed and checks capacity in
//! the same call, so there is no `step:mark_claimed` and no `step:check_capacity`.

use super::Span;

/// Each line becomes a constant and a row of `ALL`: none can be forgotten.
macro_rules! table {
    ($($constant:ident: $name:literal in $within:expr, [$($field:literal),*], $help:literal;)*) => {
        $(pub const $constant: Span =
            Span { name: $name, within: $within, fields: &[$($field),*], help: $help };)*
        pub const ALL: &[Span] = &[$($constant),*];
    };
}

table! {
    QUEUE_PROCESSING: "flow:queue_processing" in None, ["batch_size"],
        "One turn of the dispatcher, from its first claim to its last answer.";
    CLAIM_BATCH: "step:claim_batch" in Some("flow:queue_processing"), ["workspaces", "claimed"],
        "One claim: whose turn it is, capacity, and for the embedded engine the begin, in one commit.";
    PROCESS_ITEM: "step:process_item" in Some("flow:queue_processing"),
        ["queue_item_id", "execution_id", "workspace_id"],
        "One claimed item, until it is dispatched or not. Linked to the execution's own trace.";
    DISPATCH: "step:dispatch_{engine}" in Some("step:process_item"), ["engine"],
        "The start at the engine, whose name ends the span's: `step:dispatch_embedded`.";
    MARK_DISPATCHED: "step:mark_dispatched" in Some("step:process_item"), [],
        "The item is DISPATCHED. With the embedded engine the claim's commit has done it, and this has no length.";
    START_WORKFLOW: "temporal:start_workflow" in Some("step:dispatch_{engine}"), ["workflow_id", "task_queue"],
        "The request to Temporal. With the embedded engine there is none.";
    RELEASE_LOCK: "step:release_lock" in Some("flow:queue_processing"), ["lock"],
        "The end of a turn's locks. Those of shards end with the commits of its claims, so this has no length; the \
         lease of dispatch.exclusive is kept until its holder stops, and is released outside a turn.";
    DB: "db:{operation}" in Some("step:claim_batch"), ["db.system.name", "db.operation.name", "db.collection.name"],
        "One statement (`db:query`, `db:insert`, `db:update`, `db:delete`), below whatever span it is sent in; here \
         the claim.";
    WORKFLOW_EXECUTION: "flow:workflow_execution" in None,
        ["execution_id", "workspace_id", "definition_id", "trace_id"],
        "A run in one process, from its start or resumption to its end or parking; below the context of the start \
         request.";
    RUN_NODE: "step:run_node" in Some("flow:workflow_execution"), ["node", "kind", "attempt", "outcome"],
        "One attempt at a node. What an HTTP_REQUEST sends out carries this span as its parent.";
    HTTP_REQUEST: "http:request" in None, ["method", "route", "status"],
        "A request to the API; below the caller's `traceparent`, if it sent one.";
}
