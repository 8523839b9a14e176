//! The names of what this crate measures.

/// How long nodes took, by kind and status.
pub const NODE_DURATION: &str = "node_duration_seconds";
/// Runs this process holds.
pub const RUNS_HELD: &str = "engine_runs";
/// How many runs one commit recorded.
pub const RECORD_BATCH: &str = "engine_record_batch_size";
/// Records that were refused because the run belongs to another by now.
pub const RECORDS_FENCED: &str = "engine_records_fenced_total";
