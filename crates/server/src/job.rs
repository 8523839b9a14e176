//! Jobs, which events create through bindings. A job whose binding names a workflow becomes an execution. A job that
//! failed, or whose worker died, becomes pending again.
//!
//! Not here: the life of a job (`kernel::job`), the rows (`store::job`), external workers (`http::jobs`,
//! `http::rest`).

pub(crate) mod projector;
pub(crate) mod recovery;
