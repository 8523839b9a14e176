//! The keys of this service itself: root keys, and the keys that encrypt the secrets of workspaces.
//!
//! Not here: the key of a request (`http::auth`), a workspace's own keys and secrets (`store::access`).

pub(crate) mod root_keys;
pub mod secrets;
