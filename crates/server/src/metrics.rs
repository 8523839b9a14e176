//! The names of what this crate measures; those of the source documents are kept.

pub const BATCH_SIZE: &str = "queue_processing_batch_size";
pub const PROCESSING_DURATION: &str = "queue_processing_duration_seconds";
pub const PROCESSING_RUNS: &str = "queue_processing_runs_total";
pub const DISPATCHED: &str = "queue_items_dispatched_total";
pub const AT_CAPACITY: &str = "queue_items_at_capacity_total";
pub const FAILED: &str = "queue_items_failed_total";
pub const DISPATCH_FAILURES: &str = "queue_dispatch_failures_total";
pub const STALE_RECOVERY: &str = "queue_stale_recovery_count";
pub const LEASE_FAILURES: &str = "shedlock_acquisition_failures";
pub const RUNS_ADOPTED: &str = "engine_runs_adopted_total";
pub const RECONCILED: &str = "engine_runs_reconciled_total";
pub const RETIRED: &str = "executions_retired_total";
pub const ENQUEUED: &str = "queue_items_enqueued_total";
pub const HEARTBEAT_AGE: &str = "process_heartbeat_age_seconds";
pub const LAPSES: &str = "process_lapses_total";
pub const HTTP_DURATION: &str = "http_request_duration_seconds";
/// 0 closed, 1 half-open, 2 open.
pub const BREAKER_STATE: &str = "engine_breaker_state";
