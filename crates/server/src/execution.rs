//! Requests that wait for an execution to end.
//!
//! Not here: the API of executions (`http::executions`), their rows (`store::execution`).

pub(crate) mod waiters;
