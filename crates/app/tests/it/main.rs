//! The binary and the repository as a whole.

mod api_errors;
mod api_input;
mod cli;
mod dev;
mod dispatch;
mod durability;
mod engine_trouble;
mod exclusive;
mod idempotency;
mod reconciler;
mod rolling;
mod signals;
mod source_documents;
mod story;
mod support;
mod tidy;
