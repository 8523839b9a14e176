//! What this process tells its operators as metrics, and what it measures for that.
//!
//! Not here: names and meanings (`kernel::signals`), what is counted of requests (`http::measure`).

pub(crate) mod recorder;
pub(crate) mod sampler;
pub(crate) mod statistics;
