//! Waits and tasks: those whose time is up, events that may answer one, and turns of workspaces at claiming tasks.
//!
//! Not here: the life of a wait (`kernel::wait`), the rows (`store::wait`), answering one (`http::answers`,
//! `http::tasks`).

pub(crate) mod expire;
pub(crate) mod judge;
pub(crate) mod turns;
