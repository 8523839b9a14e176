//! Tests of the engine: against a real database, real listeners, and processes that give up.

mod asks;
mod conformance;
mod host;
mod mutants;
mod once;
mod outbound;
mod runs;
mod secrets;
mod statuses;
mod transient;
mod trees;
mod world;
