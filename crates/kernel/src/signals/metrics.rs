//! Every metric. The name of each metric begins with `forebay_`, except for seven names that the source documents fix.

use super::Kind::{Counter, Gauge, Histogram};
use super::Metric;

/// The upper bounds of histogram buckets, from one millisecond to half an hour.
const SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
const SIZES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
const ATTEMPTS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 10.0, 100.0];

/// Makes a constant and a row of `ALL` from each line, so that `ALL` is complete.
macro_rules! table {
    ($($constant:ident: $name:literal $kind:expr, [$($label:literal),*], $help:literal, $action:literal;)*) => {
        $(pub const $constant: Metric =
            Metric { name: $name, kind: $kind, labels: &[$($label),*], help: $help, action: $action };)*
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

table! {
    BUILD_INFO: "forebay_build_info" Gauge, ["version", "release"],
        "Always 1. The labels name the version of this process and the release of the database functions that it uses.",
        "Nothing. After an upgrade, compare the versions of all processes; old ones still have to be replaced.";

    PROCESSING_PASSES: "forebay_queue_processing_passes_total" Counter, [],
        "Passes of the dispatcher, including passes that found nothing.",
        "If it does not rise in any process, no process dispatches. Look at the dispatchers' logs and at /readyz.";
    BATCH_SIZE: "queue_processing_batch_size" Histogram(SIZES), [],
        "Queue items claimed in one dispatcher pass. Passes that claimed nothing are not counted.",
        "If it stays at dispatch.batch_max while items wait, raise dispatch.batch_max or add a process.";
    PROCESSING_DURATION: "queue_processing_duration_seconds" Histogram(SECONDS), [],
        "Duration of one dispatcher pass, from its first claim to the engine's last answer.",
        "If it rises, the database commits slowly or the pool `work` is too small. See forebay_database_pool_waiting.";
    ENQUEUED: "forebay_queue_items_enqueued_total" Counter, [],
        "Start requests accepted over HTTP.",
        "If it stays above queue_items_dispatched_total, the backlog grows. forebay_queue_oldest_ready_age_seconds \
         shows whether dispatching is slow or workspaces are at their limits.";
    DISPATCHED: "queue_items_dispatched_total" Counter, [],
        "Queue items handed to the engine.",
        "If it does not rise while items wait for dispatch, dispatching has stopped. See \
         forebay_queue_dispatch_failures_total.";
    AT_CAPACITY: "queue_items_at_capacity_total" Counter, [],
        "Times that a workspace used its last slot while more of its items waited. Counted once until a slot is free \
         again.",
        "Nothing is wrong. If it is often the same workspace (the log event names it), offer that workspace a larger \
         tier.";
    FAILED: "queue_items_failed_total" Counter, ["reason"],
        "Queue items that ended FAILED, by error class.",
        "CRASH_LOOP and STALLED are faults of Forebay: report them. For DISPATCH_REFUSED, look at the engine. The \
         other classes are errors of the workflows themselves.";
    DISPATCH_FAILURES: "forebay_queue_dispatch_failures_total" Counter, ["reason"],
        "Starts that did not succeed: the engine refused the start (refused), could not be reached (unavailable), or \
         gave no clear answer (ambiguous).",
        "If `refused` rises, look at the dead letters. If `unavailable` or `ambiguous` rises, the engine or the \
         network is in trouble: those items keep their slots, and no attempt is counted.";
    ITEM_ATTEMPTS: "forebay_queue_item_attempts" Histogram(ATTEMPTS), [],
        "Attempts that a queue item needed until it was dispatched or failed.",
        "Values above 1 mean that an engine refuses starts. See forebay_queue_dispatch_failures_total.";
    STALE_RECOVERY: "queue_stale_recovery_count" Counter, [],
        "Claimed queue items that another process took over because their claimer was dead or too slow.",
        "A few after a crash are normal. If it rises steadily, processes die or their heartbeats fail.";
    LOCK_FAILURES: "shedlock_acquisition_failures" Counter, [],
        "Attempts to get a lock of the table shedlock that failed: another process held it, or the database did not \
         answer.",
        "With dispatch.exclusive it rises in every process but one. If no process holds the lock, look for a row in \
         shedlock with a lock_until far in the future.";
    RUNS_RECONCILED: "forebay_engine_runs_reconciled_total" Counter, [],
        "Runs on an external engine that Forebay ended because that engine reported that they ended.",
        "A few are normal. If it rises steadily, workers end runs without reporting it; look at their logs.";
    RUNS_STUCK: "forebay_engine_runs_stuck" Gauge, ["reason"],
        "Runs on an external engine that make no progress, in the shards of this process: no worker polls for them \
         (no_worker), or their worker keeps failing (worker_failing). Runs that have begun are checked in turn, each \
         within twenty polls. Sum it over processes.",
        "For `no_worker`, start a worker for the task queue. For `worker_failing`, read the logs of the workers: they \
         have another version, or lack the encryption key.";
    EXECUTIONS_DELETED: "forebay_retention_executions_deleted_total" Counter, [],
        "Executions deleted because they ended more than retention.execution_days ago.",
        "If it stays 0 while the database grows, look in the log for warnings about retention.";
    BREAKER_STATE: "forebay_engine_breaker_state" Gauge, [],
        "State of the circuit breaker between this process and its engine: 0 closed (starts are sent), 1 half-open \
         (one start is tried), 2 open (no start is sent).",
        "At 2, claimed items wait and this process starts nothing. /readyz says since when and why.";
    DEPTH: "forebay_queue_depth" Gauge, ["stage"],
        "Queue items in the shards of this process, by stage: ready, delayed, blocked_by_key (another execution has \
         the same concurrency key), blocked_by_definition (the workflow's own limit is reached), and holds_slot \
         (claimed or running). Each shard and stage counts up to 10,000. Only one process reports `delayed`, for \
         all shards. To get the total of any stage, add up all processes.",
        "If `ready` grows, see forebay_queue_oldest_ready_age_seconds. Items in `blocked_by_key` and \
         `blocked_by_definition` wait for limits that the workflows set themselves.";
    OLDEST_READY_AGE: "forebay_queue_oldest_ready_age_seconds" Gauge, ["waiting_for"],
        "Age of the oldest ready item. waiting_for is `dispatch` if its workspace has a free slot, and `slot` if its \
         workspace is full or paused. Take the maximum over processes.",
        "If `dispatch` is above two poll intervals, dispatching is behind: add a process, or find out why claims \
         fail. If `slot` grows, that workspace starts more than its limit allows.";
    OLDEST_SNAPSHOT_AGE: "forebay_database_oldest_snapshot_age_seconds" Gauge, [],
        "Age of the oldest snapshot in the database, held by any session or prepared transaction. The process with \
         shard 0 reports it. Take the maximum over processes.",
        "Above some minutes, sweeps become slower with every execution that ends. \"Old snapshots\" in \
         docs/reference/operations.md says how to find the holder.";
    OLDEST_XMIN_AGE: "forebay_database_oldest_xmin_age_transactions" Gauge, [],
        "Age of the oldest xmin in the database, in transactions, including replication slots. The process with shard \
         0 reports it. Take the maximum over processes.",
        "If it is in the millions while forebay_database_oldest_snapshot_age_seconds is small, nobody reads a \
         replication slot. Drop that slot.";
    SLOTS_IN_USE: "forebay_queue_slots_in_use" Gauge, [],
        "Slots in use, in the shards of this process. Sum it over processes.",
        "If forebay_engine_runs is far below it, runs are parked or their owner is dead. See \
         forebay_engine_runs_taken_over_total.";
    SLOTS_LIMIT: "forebay_queue_slots_limit" Gauge, [],
        "Sum of the limits of all workspaces that use slots or have ready items, in the shards of this process. Sum it \
         over processes.",
        "If forebay_queue_slots_in_use is close to it, the busy workspaces are at their limits.";
    ENQUEUE_TO_START: "forebay_queue_enqueue_to_start_seconds" Histogram(SECONDS), [],
        "Time from when an item may start (when it was accepted, or its delay ended) until it started.",
        "It includes waits for the workspace's own limit. Compare it with \
         forebay_queue_oldest_ready_age_seconds{waiting_for=\"dispatch\"}.";
    COMPLETION_TO_NEXT: "forebay_queue_completion_to_next_start_seconds" Histogram(SECONDS), [],
        "Time from the end that freed a slot of a full workspace until the claim that used the slot again.",
        "If it rises, the database commits slowly, or the process is at engine.max_runs.";
    RUNS_HELD: "forebay_engine_runs" Gauge, [],
        "Runs that this process holds in memory. Parked runs are not included.",
        "At nine tenths of engine.max_runs the process claims nothing new. Add a process, or raise engine.max_runs if \
         there is enough memory.";
    RUNS_ENDED: "forebay_engine_runs_ended_total" Counter, ["outcome"],
        "Runs that ended in this process, by outcome.",
        "FAILED is usually an error of the workflow itself. If it jumps in all workspaces, look at a service that they \
         all call.";
    RUNS_TAKEN_OVER: "forebay_engine_runs_taken_over_total" Counter, [],
        "Runs that this process resumed because their owner was dead.",
        "A few after a crash or a restart are normal. If it rises steadily, processes die; look at the last lines of \
         their logs.";
    RUNS_PER_COMMIT: "forebay_engine_runs_per_commit" Histogram(SIZES), [],
        "Runs whose progress one commit stored.",
        "Nothing. High values under load are good: fewer commits per run.";
    STARTS_PER_COMMIT: "forebay_queue_starts_per_commit" Histogram(SIZES), [],
        "Single start requests over HTTP that one commit stored.",
        "Nothing. High values under load are good: fewer commits per start.";
    RUNS_LOST: "forebay_engine_runs_lost_total" Counter, [],
        "Runs that this process dropped because another process owns them now.",
        "Normal after this process was paused or its lease expired. If it rises steadily, heartbeats are late. See \
         forebay_process_heartbeat_age_seconds.";
    NODE_DURATION: "forebay_node_attempt_duration_seconds" Histogram(SECONDS), ["kind", "outcome"],
        "Duration of one attempt at a node, by kind and outcome.",
        "If HTTP_REQUEST is slow or fails everywhere, look at the network, or at a service that most workflows call.";
    HTTP_DURATION: "forebay_http_request_duration_seconds" Histogram(SECONDS), ["route", "method", "status"],
        "Duration of HTTP requests to this process, by route, method and status. Its count is the request rate.",
        "Status 503: look at the database. Status 500: a fault of Forebay; the log has the error. Requests with \
         `?wait=` are long on purpose.";
    HTTP_CONNECTIONS: "forebay_http_connections" Gauge, [],
        "Open connections of clients, including event streams and sockets.",
        "Near http.max_connections: see forebay_http_connections_closed_total. Raise the limit of open files, or add a \
         process.";
    HTTP_CLOSED: "forebay_http_connections_closed_total" Counter, ["reason"],
        "Connections that this process closed. http.max_connections is reached (connection_limit), or \
         http.max_connections_per_address is reached (address_limit). A new connection replaced an idle one \
         (replaced). No request came in time (header_timeout, idle_timeout). The client did not read its response \
         (write_timeout).",
        "If `connection_limit` rises, raise the limit of open files. If `address_limit` rises, a client opens too many \
         connections, or a proxy is missing in http.trusted_proxies. If `header_timeout` or `replaced` rises, clients \
         are slow, or somebody keeps connections open on purpose.";
    AUTH_FAILURES: "forebay_authentication_failures_total" Counter, ["reason"],
        "Requests rejected because of their key or token: there was none (missing), it is not a key (malformed), it \
         does not exist, is revoked or has expired (unknown), or its address had too many failures (rate_limited).",
        "If `unknown` or `rate_limited` rises, a client uses a revoked key, or somebody guesses keys; the log names \
         the addresses. If `missing` rises, a client has lost its configuration.";
    POOL_CONNECTIONS: "forebay_database_pool_connections" Gauge, ["pool", "state"],
        "Database connections of a pool (api, work) by state: in_use, idle, and max, the size of the pool.",
        "If in_use equals max while forebay_database_pool_waiting is above 0, raise database.api_connections or \
         database.work_connections, if the database has room.";
    POOL_WAITING: "forebay_database_pool_waiting" Gauge, ["pool"],
        "Calls that wait for a connection of a pool.",
        "If it stays above 0, the pool is too small or the database is too slow.";
    TICKS: "forebay_schedule_ticks_total" Counter, ["outcome"],
        "Ticks of schedules that this process handled, by outcome: started, buffered, skipped, failed, refused. Missed \
         ticks of one schedule in a row count as one skipped tick.",
        "If `failed` rises, a schedule's inputs no longer match its workflow, or no version is published; \
         `forebay schedule get` says which. If `refused` rises, the backlog is full. If `skipped` rises, runs take \
         longer than the time between ticks.";
    TICK_LATENESS: "forebay_schedule_tick_lateness_seconds" Histogram(SECONDS), [],
        "Time from a tick until the commit that started it, including missed ticks that were caught up.",
        "Above two poll intervals without a restart, the dispatchers are too few or too slow.";
    HEARTBEAT_AGE: "forebay_process_heartbeat_age_seconds" Gauge, [],
        "Age of this process's last successful heartbeat.",
        "Near process.claim_lease_ms the process is about to drop its runs. Look at the database and the network to \
         it.";
    PROCESS_LEASES_EXPIRED: "forebay_process_leases_expired_total" Counter, [],
        "Times that the lease of this process expired because its heartbeats failed, so that it dropped its runs.",
        "Any value above 0: the process was paused, had no processor time, or could not reach the database.";
    CHANGE_SUBSCRIBERS: "forebay_change_subscribers" Gauge, ["transport"],
        "Clients that receive changes from this process, by transport: websocket, sse (event streams).",
        "If it is far above the number of your workers, a client opens connections and forgets them.";
    CHANGES_READ: "forebay_changes_read_total" Counter, [],
        "Changes that this process read for its subscribers. It reads none without subscribers.",
        "If it stays 0 while there are subscribers and jobs change, look in the log for warnings about changes.";
    CHANGE_LAG: "forebay_change_lag_seconds" Histogram(SECONDS), [],
        "Time from when a change was written until this process read it, including the rest of its transaction.",
        "If it rises, transactions that write jobs stay open, or the database is slow.";
    CHANGES_PENDING: "forebay_changes_pending" Gauge, [],
        "Changes that event streams do not send yet, because an older transaction that writes is still open.",
        "Above some thousands, find the transaction in pg_stat_activity. idle_in_transaction_session_timeout ends such \
         transactions.";
    SUBSCRIBERS_DROPPED: "forebay_change_subscribers_dropped_total" Counter, ["reason"],
        "Subscribers disconnected because they read too slowly (slow), or because too many changes waited for an open \
         transaction (behind). If changes were lost, all subscribers are disconnected, which counts once (lost).",
        "If `slow` rises, a client does too much between two reads of its stream. If `behind` rises, a long \
         transaction holds changes back: find it in pg_stat_activity and end it. If `lost` rises, the database \
         crashed, or this process could not read changes for minutes.";

    WEBHOOK_ATTEMPTS: "forebay_webhook_delivery_attempts_total" Counter, ["outcome"],
        "Attempts to deliver a webhook, by outcome: delivered, retry (it is sent again later), failed (given up).",
        "If `failed` rises, receivers no longer answer; GET /api/v1/webhooks says which webhooks were disabled and \
         why. If `retry` rises for all webhooks at once, check the outgoing network of the service.";
    WEBHOOK_OLDEST_DUE: "forebay_webhook_oldest_due_age_seconds" Gauge, [],
        "How long the oldest due webhook delivery has waited to be sent. Take the maximum over processes.",
        "Above a minute, receivers are slow or no process sends. Add a process with the role dispatcher.";
    TRIGGER_REQUESTS: "forebay_trigger_requests_total" Counter, ["outcome"],
        "Requests to trigger URLs, by outcome: accepted, repeated, refused (signature, size, rate or input), unknown \
         (no such token).",
        "If `unknown` rises, a sender uses an old URL, or somebody guesses tokens. If `refused` rises, the sender got \
         the reason in its response.";

    TASKS: "forebay_tasks" Gauge, ["status"],
        "Tasks by status: open (waits for a worker), claimed (a worker has it). Take the maximum over processes.",
        "If `open` grows, the workers of a queue are gone or too few. `forebay task ls --status OPEN` names the \
         queues.";
    TASK_CLAIMS: "forebay_task_claims_total" Counter, [],
        "Tasks handed to workers.",
        "If it is far above the number of completed tasks, workers die before they finish. See \
         forebay_task_leases_expired_total.";
    TASK_LEASES_EXPIRED: "forebay_task_leases_expired_total" Counter, [],
        "Task leases that expired because the worker sent no heartbeat in time.",
        "If it rises, workers crash, or send no heartbeats while they work.";
    ANSWERS: "forebay_wait_answers_total" Counter, ["source"],
        "Answers that waits accepted, by source: key (an API request), token (a public link), event.",
        "If there are none where you expect some, the links or the events do not reach this service.";
}
