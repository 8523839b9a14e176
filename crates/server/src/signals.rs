//! The recorder of this process's metrics, and the loops that measure gauges.
//!
//! Not here: names and meanings (`kernel::signals`), metrics of requests (`http::measure`).

pub(crate) mod recorder;
pub(crate) mod sampler;
pub(crate) mod statistics;
