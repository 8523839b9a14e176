//! How this process works together with the other processes: roles, heartbeat, leases, the detection of dead processes,
//! and the notifications that processes send each other.
//!
//! Not here: what the loops do (the module of each feature), starting and stopping them (`start`).

pub(crate) mod background_loop;
pub(crate) mod dead;
pub(crate) mod heartbeat;
pub(crate) mod lease;
pub(crate) mod notifications;
pub(crate) mod protocol;
pub(crate) mod role;
pub(crate) mod wakeups;
