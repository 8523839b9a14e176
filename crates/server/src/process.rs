//! This process among the others: its roles, its heartbeat and leases, who is dead, and the hints that processes send
//! each other.
//!
//! Not here: what its loops do (the room of each feature), starting and stopping them (`start`).

pub(crate) mod dead;
pub(crate) mod heartbeat;
pub(crate) mod hints;
pub(crate) mod lease;
pub(crate) mod pass;
pub(crate) mod protocol;
pub(crate) mod role;
pub(crate) mod wakes;
