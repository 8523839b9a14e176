//! API keys, secrets, and rules for outbound calls: who may do what, and what a call may use.
//!
//! Not here: which scope a request needs (`kernel::access`), sealing a secret (`engine::vault`).

pub mod key;
pub mod outbound;
pub mod secret;
pub mod token;
