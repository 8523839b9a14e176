//! Runs in need of attention: their owner died, their time has come, their deadline passed, or an engine elsewhere lost
//! them.
//!
//! Not here: what happens inside a run (`kernel::run`, `engine`), the rows (`store::run`).

pub(crate) mod deadline;
pub(crate) mod engine_health;
pub(crate) mod notify;
pub(crate) mod reconcile;
pub(crate) mod resume;
pub(crate) mod wake;
