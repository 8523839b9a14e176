//! Checks of inputs against the rules of published definitions, which this process caches.
//!
//! Not here: parsing a definition (`kernel::definition`), publishing a version (`http::definitions`).

pub(crate) mod inputs;
