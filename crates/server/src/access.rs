//! The keys of this service: root keys, and those that seal secrets.
//!
//! Not here: who is asking (`http::auth`), a workspace's own keys and secrets (`store::access`).

pub(crate) mod root_keys;
pub mod secrets;
