//! Jobs that bound events made: ours become executions, and those that failed or lost their worker come back.
//!
//! Not here: the life of a job (`kernel::job`), the rows (`store::job`), workers from outside (`http::projection`,
//! `http::rest`).

pub(crate) mod projector;
pub(crate) mod recovery;
