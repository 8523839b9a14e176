//! What is remembered of published definitions.
//!
//! Not here: reading one (`kernel::definition`), publishing one (`http::definitions`).

pub(crate) mod inputs;
