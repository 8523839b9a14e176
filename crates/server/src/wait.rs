//! Waits and tasks: the loops that expire them and that answer waits with events, and the workspace that is next when a
//! worker claims tasks across workspaces.
//!
//! Not here: the life of a wait (`kernel::wait`), the rows (`store::wait`), requests that answer waits or claim tasks
//! (`http::waits`, `http::tasks`).

pub(crate) mod expire;
pub(crate) mod last_served;
pub(crate) mod match_events;
