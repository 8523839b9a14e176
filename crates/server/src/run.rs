//! Loops that change runs from outside: they resume runs whose owner died, wake parked runs, end executions whose
//! deadline passed, and end runs that an external engine has lost.
//!
//! Not here: what happens inside a run (`kernel::run`, `engine`), the rows (`store::run`).

pub(crate) mod deadline;
pub(crate) mod engine_health;
pub(crate) mod notify;
pub(crate) mod reconcile;
pub(crate) mod resume;
pub(crate) mod wake;
