//! The queue at work: items are claimed, started, moved on, taken over from the dead, and freed when nobody looks after
//! them.
//!
//! Not here: the life of an item (`kernel::queue`), the claim itself (`store::queue`), its API (`http::queue`).

pub(crate) mod breaker;
pub(crate) mod dispatch;
pub(crate) mod promote;
pub(crate) mod starter;
pub(crate) mod strays;
pub(crate) mod takeover;
