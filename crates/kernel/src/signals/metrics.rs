//! Every metric. Those of the source documents keep their names.

use super::Kind::{Counter, Gauge, Histogram};
use super::Metric;

/// From what is aimed at to what is terrible.
const SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
const SIZES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
const ATTEMPTS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 10.0, 100.0];

/// Each line becomes a constant and a row of `ALL`: none can be forgotten.
macro_rules! table {
    ($($constant:ident: $name:literal $kind:expr, [$($label:literal),*], $help:literal, $act:literal;)*) => {
        $(pub const $constant: Metric =
            Metric { name: $name, kind: $kind, labels: &[$($label),*], help: $help, act: $act };)*
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

table! {
    PROCESSING_RUNS: "queue_processing_runs_total" Counter, [],
        "Passes of the dispatcher: turns and sweeps, whether or not they found something.",
        "None anywhere: no process dispatches; look at the dispatchers' logs and at /readyz.";
    BATCH_SIZE: "queue_processing_batch_size" Histogram(SIZES), [],
        "Items claimed in one turn.",
        "Always at dispatch.batch_max with items waiting: raise dispatch.batch_max, or add a process.";
    PROCESSING_DURATION: "queue_processing_duration_seconds" Histogram(SECONDS), [],
        "From a turn's first claim to its last answer.",
        "Rising: the database is slow to commit, or its work pool is too small. See database_pool_waiting.";
    ENQUEUED: "queue_items_enqueued_total" Counter, [],
        "Starts accepted over HTTP.",
        "Above queue_items_dispatched_total for long: the backlog grows. See queue_oldest_age_seconds for whose fault \
         it is.";
    DISPATCHED: "queue_items_dispatched_total" Counter, [],
        "Items handed to the engine.",
        "Zero while items wait for their turn: dispatching stands still. See queue_dispatch_failures_total.";
    AT_CAPACITY: "queue_items_at_capacity_total" Counter, [],
        "A workspace became full with items waiting; once per transition.",
        "Nothing is wrong. Often for one workspace (the log event names it): offer it a larger tier.";
    FAILED: "queue_items_failed_total" Counter, ["reason"],
        "Items that ended FAILED, by the class of the failure.",
        "CRASH_LOOP and STALLED are faults of ours: report them. DISPATCH_REFUSED: look at the engine. The rest is the \
         workflow's own.";
    DISPATCH_FAILURES: "queue_dispatch_failures_total" Counter, ["reason"],
        "Starts that the engine refused, or did not answer clearly.",
        "refused: the items' fault, see the dead letter. Otherwise the engine or the way to it is in trouble; items \
         keep their slots and no attempt is counted.";
    ITEM_ATTEMPTS: "queue_item_attempts" Histogram(ATTEMPTS), [],
        "Attempts that an item took until it was dispatched or given up.",
        "Above 1: an engine refuses starts. See queue_dispatch_failures_total.";
    STALE_RECOVERY: "queue_stale_recovery_count" Counter, [],
        "Claimed items taken over because their claimer was gone or too slow.",
        "A few after a crash are right. Steady: processes die, or their heartbeats do not get through.";
    LOCK_FAILURES: "shedlock_acquisition_failures" Counter, [],
        "Times that a lock of the shedlock table was somebody else's, or could not be had.",
        "With dispatch.exclusive every process but one counts here. Without a holder anywhere: look for a stale row \
         with a lock_until far ahead.";
    RECONCILED: "engine_runs_reconciled_total" Counter, [],
        "Runs of an engine elsewhere that were ended here because that engine said so.",
        "A few are right. Steady: workers end runs without telling; look at their logs.";
    STUCK: "engine_runs_stuck" Gauge, ["why"],
        "Runs of an engine elsewhere that do not go on, in the shards this process looks after: picked up by no worker \
         or waiting for one that is not there (idle), or whose own code keeps failing (failing). Runs that have begun \
         are looked at in turn, each within twenty polls.",
        "idle: no worker polls the task queue, start one. failing: workers of another version, or without the key; the \
         workers' logs say which.";
    RETIRED: "executions_retired_total" Counter, [],
        "Executions deleted because they ended longer ago than retention.execution_days.",
        "Nothing, unless it stays 0 while the database grows: look for warnings of the retention loop.";
    BREAKER_STATE: "engine_breaker_state" Gauge, [],
        "Whether this process reaches its engine: 0 yes, 1 trying again, 2 no.",
        "2: claimed items wait and nothing starts here; /readyz says since when and why.";
    DEPTH: "queue_depth" Gauge, ["stage"],
        "Items by stage, in the shards this process looks after (delayed: all, told by one process); at most 10,000 a \
         shard and stage are counted. Sum over processes.",
        "ready grows: see queue_oldest_age_seconds. key and definition wait for limits that workflows set themselves.";
    OLDEST_AGE: "queue_oldest_age_seconds" Gauge, ["waits_for"],
        "Age of the oldest ready item: turn, its workspace has a free slot; slot, its workspace is full or paused. \
         Take the maximum over processes.",
        "turn above two polls: dispatching is behind; add a process, or see why claims fail. slot: that workspace \
         wants more than its limit.";
    OLDEST_SNAPSHOT: "database_oldest_snapshot_seconds" Gauge, [],
        "For how long the oldest snapshot of the database has been held, by any session or prepared transaction; told \
         by the process that looks after shard 0. Take the maximum over processes.",
        "Minutes: claims become slower with every execution that ends. docs/operations.md, Old snapshots, says how to \
         find who holds it.";
    OLDEST_XMIN: "database_oldest_xmin_transactions" Gauge, [],
        "How many transactions ago the oldest xmin of the database is, replication slots included; told by the process \
         that looks after shard 0. Take the maximum over processes.",
        "Millions while database_oldest_snapshot_seconds is small: a replication slot that nobody reads. Drop it.";
    SLOTS_IN_USE: "queue_slots_in_use" Gauge, [],
        "Slots taken, in the shards this process looks after. Sum over processes.",
        "With engine_runs far below it: runs are parked, or their owner is gone; see engine_runs_adopted_total.";
    SLOTS_LIMIT: "queue_slots_limit" Gauge, [],
        "Limits of the workspaces that hold slots or have ready items, summed, in the shards this process looks after. \
         Sum over processes.",
        "queue_slots_in_use close to it: the busy workspaces are at their limits.";
    ENQUEUE_TO_START: "queue_enqueue_to_start_seconds" Histogram(SECONDS), [],
        "From the moment an item may start (accepted, or its delay over) until it did.",
        "It holds waits for a workspace's own limit too. Compare with queue_oldest_age_seconds{waits_for=\"turn\"}.";
    COMPLETION_TO_NEXT: "queue_completion_to_next_start_seconds" Histogram(SECONDS), [],
        "From an end that freed a slot of a full workspace to the claim that took the slot again.",
        "Rising: the database commits slowly, or the engine is full (engine.max_runs).";
    RUNS_HELD: "engine_runs" Gauge, [],
        "Runs that this process holds; parked ones do not count.",
        "At nine tenths of engine.max_runs it claims nothing new: add a process, or raise engine.max_runs if memory \
         allows.";
    RUNS_ENDED: "engine_runs_ended_total" Counter, ["outcome"],
        "Runs that ended in this process, by outcome.",
        "FAILED is the workflows' own, as a rule; a jump over all workspaces points at something they all call.";
    RUNS_ADOPTED: "engine_runs_adopted_total" Counter, [],
        "Runs taken up from a process that is gone.",
        "A few after a crash or a restart are right. Steady: processes die; look at their last lines.";
    RECORD_BATCH: "engine_record_batch_size" Histogram(SIZES), [],
        "Runs recorded in one commit.",
        "High under load is good: fewer commits a run.";
    RECORDS_FENCED: "engine_records_fenced_total" Counter, [],
        "Runs that this process lost to another.",
        "Only after a pause or a lapse. Steady: heartbeats arrive late; see process_heartbeat_age_seconds.";
    NODE_DURATION: "node_duration_seconds" Histogram(SECONDS), ["kind", "outcome"],
        "How long one attempt at a node took, by kind and outcome.",
        "HTTP_REQUEST slow or failed everywhere: the network out, or what most workflows call.";
    HTTP_DURATION: "http_request_duration_seconds" Histogram(SECONDS), ["route", "method", "status"],
        "Requests by route, method and status; their count is the request rate.",
        "Status 503: the database. 500: a fault of ours; the log has it. ?wait= makes reads of an execution long on \
         purpose.";
    HTTP_CONNECTIONS: "http_connections" Gauge, [],
        "Connections of clients, those of streams and sockets included.",
        "Near http.max_connections: see http_connections_closed_total; raise the limit of open files, or add a \
         process.";
    HTTP_CLOSED: "http_connections_closed_total" Counter, ["reason"],
        "Connections that this process closed: the bound is reached and every connection has a request under way \
         (total; address, for those of one address), a newcomer took the place of one without a request (replaced), no \
         request came in time (head, idle), the client did not read its answer (unread).",
        "address: a client opens too many, or a proxy is missing in http.trusted_proxies. head or replaced rising: \
         slow clients, or somebody holds connections open on purpose. total: raise the limit of open files.";
    AUTH_FAILURES: "authentication_failures_total" Counter, ["reason"],
        "Requests that were not let in: missing (no key), malformed (not a key), unknown (never made, revoked or \
         expired), limited (too many failures from that address).",
        "unknown or limited rising: a client uses a revoked key, or somebody guesses; the log names the addresses. \
         missing: a client lost its configuration.";
    POOL_CONNECTIONS: "database_pool_connections" Gauge, ["pool", "state"],
        "Connections of a pool: in_use, idle, max.",
        "in_use at max with database_pool_waiting above 0: raise database.api_connections or \
         database.work_connections, if the database has room.";
    POOL_WAITING: "database_pool_waiting" Gauge, ["pool"],
        "Calls that wait for a connection of a pool.",
        "Above 0 for long: the pool is too small, or the database too slow.";
    TICKS: "schedule_ticks_total" Counter, ["outcome"],
        "Ticks of schedules that this process looked at, by what became of them: started, buffered, skipped, failed, \
         refused. However many were missed in a row, they are one skipped.",
        "failed: their inputs no longer fit, or nothing is published; `forebay schedule get` says which. refused: a \
         backlog is full. skipped often: runs take longer than the time between ticks.";
    TICK_LATENESS: "schedule_tick_lateness_seconds" Histogram(SECONDS), [],
        "From a tick to the commit that started it, those caught up included.",
        "Above two polls without a restart: the processes that dispatch are too few or too slow to get round.";
    HEARTBEAT_AGE: "process_heartbeat_age_seconds" Gauge, [],
        "Age of this process's last successful heartbeat.",
        "Near process.claims_after_ms: the process is about to give its runs up. Look at the database and the network \
         between.";
    FEED_FOLLOWERS: "feed_followers" Gauge, ["face"],
        "Who follows the changes through this process: socket, stream.",
        "Far above the number of your workers: a client opens connections and forgets them.";
    FEED_CHANGES: "feed_changes_total" Counter, [],
        "Changes read by this process, while anybody follows them here.",
        "0 while somebody follows and jobs move: look for warnings of the feed.";
    FEED_LAG: "feed_lag_seconds" Histogram(SECONDS), [],
        "From the moment a change was written until this process read it; the rest of its transaction is in it.",
        "Rising: transactions that write jobs stay open, or the database is slow.";
    FEED_UNSETTLED: "feed_unsettled" Gauge, [],
        "Changes that streams cannot be told yet, because a writing transaction that is older is still open.",
        "Above some thousands: find the transaction in pg_stat_activity; idle_in_transaction_session_timeout ends \
         such.";
    FEED_DROPPED: "feed_dropped_total" Counter, ["reason"],
        "Followers dropped because they read too slowly (slow), and times that the log was lost (lost).",
        "slow: a client does too much before it reads on. lost: the database crashed, or this process could not read \
         for minutes.";
    LAPSES: "process_lapses_total" Counter, [],
        "Times that this process gave its runs up because its heartbeats did not get through.",
        "Any: the process was stopped, starved of processor time, or cut off from the database.";

    WEBHOOK_DELIVERIES: "webhook_deliveries_total" Counter, ["outcome"],
        "Attempts to tell a webhook of an end: delivered, later (it is tried again), failed (given up).",
        "failed rising: receivers are gone; GET /api/v1/webhooks names those that are off, and why. later on all of \
         them: the network out.";
    WEBHOOK_OLDEST: "webhook_oldest_due_seconds" Gauge, [],
        "For how long the oldest delivery that is due has been waiting for a sender. Take the maximum over processes.",
        "Above a minute: receivers are slow, or no process sends. Add a process with the dispatcher role.";
    HOOK_REQUESTS: "hook_requests_total" Counter, ["outcome"],
        "Requests to addresses of `on: webhook`: accepted, repeated, refused (signature, size, rate, input), unknown \
         (no such token).",
        "unknown rising: a sender uses an old address, or somebody guesses. refused: its sender's logs have the \
         reason.";

    TASKS: "tasks_depth" Gauge, ["status"],
        "Tasks that wait for a worker (open), and that one has (claimed). Take the maximum over processes.",
        "open growing: the workers of a queue are gone or too few; `forebay tasks ls --status OPEN` names the queues.";
    TASK_CLAIMS: "task_claims_total" Counter, [],
        "Tasks that were handed out to workers.",
        "Far above what completes: workers die over their tasks; see task_leases_lost_total.";
    TASKS_LOST: "task_leases_lost_total" Counter, [],
        "Tasks whose worker was not heard of for its lease.",
        "Rising: workers crash, or do not send heartbeats while they work.";
    ANSWERS: "wait_answers_total" Counter, ["by"],
        "Answers to waits that were accepted: by a key, a token or an event.",
        "None where some are expected: the links or the events do not reach this service.";
}
