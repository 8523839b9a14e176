//! The binary and the repository as a whole.

mod api_access;
mod api_errors;
mod api_hostile;
mod api_input;
mod api_keys;
mod api_lists;
mod cli;
mod dev;
mod dispatch;
mod durability;
mod idempotency;
mod signals;
mod source_documents;
mod story;
mod support;
mod tidy;
