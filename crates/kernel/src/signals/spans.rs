//! Every span. Each SQL statement has one span. One statement claims items, marks them claimed and checks capacity, so
//! there is no `step:mark_claimed` and no `step:check_capacity`.

use super::Span;

/// Makes a constant and a row of `ALL` from each line, so that `ALL` is complete.
macro_rules! table {
    ($($constant:ident: $name:literal in $parent:expr, [$($field:literal),*], $help:literal;)*) => {
        $(pub const $constant: Span =
            Span { name: $name, parent: $parent, fields: &[$($field),*], help: $help };)*
        pub const ALL: &[Span] = &[$($constant),*];
    };
}

table! {
    QUEUE_PROCESSING: "flow:queue_processing" in None, ["batch_size"],
        "One dispatcher pass, from its first claim to the engine's last answer.";
    CLAIM_BATCH: "step:claim_batch" in Some("flow:queue_processing"), ["workspaces", "claimed"],
        "One claim. Its commit chooses workspaces and checks capacity. With the embedded engine it also begins the \
         executions.";
    PROCESS_ITEM: "step:process_item" in Some("flow:queue_processing"),
        ["queue_item_id", "execution_id", "workspace_id"],
        "One claimed item, until it is dispatched or given back. Linked to the execution's own trace.";
    DISPATCH: "step:dispatch_{engine}" in Some("step:process_item"), ["engine"],
        "The start at the engine. `{engine}` is its name, as in `step:dispatch_embedded`.";
    MARK_DISPATCHED: "step:mark_dispatched" in Some("step:process_item"), [],
        "Marks the item DISPATCHED. With the embedded engine the claim's commit already did that, so this span has no \
         length.";
    START_WORKFLOW: "temporal:start_workflow" in Some("step:dispatch_{engine}"), ["workflow_id", "task_queue"],
        "The request to Temporal. The embedded engine has no such span.";
    RELEASE_LOCK: "step:release_lock" in Some("flow:queue_processing"), ["lock"],
        "The release of a pass's locks. Shard locks end with the commits of the claims, so this span has no length. \
         The lease of dispatch.exclusive is released only when its holder stops.";
    DB: "db:{operation}" in Some("step:claim_batch"), ["db.system.name", "db.operation.name", "db.collection.name"],
        "One SQL statement (`db:query`, `db:insert`, `db:update`, `db:delete`), below the span that sends it; here the \
         claim.";
    WORKFLOW_EXECUTION: "flow:workflow_execution" in None,
        ["execution_id", "workspace_id", "definition_id", "trace_id"],
        "A run in one process, from its start or resumption until it ends or parks. Its parent is the start request's \
         trace context.";
    RUN_NODE: "step:run_node" in Some("flow:workflow_execution"), ["node", "kind", "attempt", "outcome"],
        "One attempt at a node. The request of an HTTP_REQUEST node carries this span as its parent.";
    HTTP_REQUEST: "http:request" in None, ["method", "route", "status"],
        "A request to the API. Its parent is the caller's `traceparent`, if there is one.";
}
