//! Measurements of the database and the queue: spans, gauges, and the planner's statistics.
//!
//! Not here: names of metrics and spans (`kernel::signals`).

pub mod sample;
pub(crate) mod span;
mod statistics;
