//! The binary and the repository as a whole.

mod api_access;
mod api_errors;
mod api_hostile;
mod api_input;
mod api_keys;
mod api_lists;
mod bulk;
mod cli;
mod control;
mod deploy;
mod dev;
mod dispatch;
mod durability;
mod engine_trouble;
mod exclusive;
mod forced_ends;
mod idempotency;
mod letters;
mod poison;
mod reconciler;
mod rolling;
mod signals;
mod source_documents;
mod story;
mod support;
mod tidy;
