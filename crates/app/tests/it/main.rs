//! The binary and the repository as a whole.

mod api_errors;
mod api_input;
mod cli;
mod deploy;
mod dev;
mod dispatch;
mod durability;
mod idempotency;
mod signals;
mod source_documents;
mod story;
mod support;
mod tidy;
