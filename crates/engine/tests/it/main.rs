//! Tests of the engine against a real database, real listeners, and processes that die.

mod at_most_once;
mod conformance;
mod gather;
mod host;
mod mutants;
mod outbound;
mod runs;
mod secrets;
mod statuses;
mod transient;
mod trees;
mod waits;
mod world;
