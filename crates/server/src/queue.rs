//! The loops of the queue. They claim items, start them, promote those that are due or no longer blocked, take over the
//! items of dead processes, and free slots that no run uses.
//!
//! Not here: the life of an item (`kernel::queue`), the claim itself (`store::queue`), its API (`http::queue`).

pub(crate) mod breaker;
pub(crate) mod dispatch;
pub(crate) mod promote;
pub(crate) mod starter;
pub(crate) mod strays;
pub(crate) mod takeover;
