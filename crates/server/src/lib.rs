//! The service: HTTP in front, background loops behind, both over one store and one engine.
//!
//! Invariants
//! - Only here is the HTTP framework, and every background loop.
//! - All loops have the same shape. A timer or a notification without content wakes a loop. A pass reads the database,
//!   decides and acts, and repeating it does no harm. A loop stops only between two passes, never because of an error.
//!
//! Not here: command-line arguments and environment variables (`app`), decisions (`kernel`), SQL (`store`).

pub mod access;
pub mod config;
mod connection;
mod definition;
mod execution;
mod feed;
pub mod http;
mod job;
mod process;
mod queue;
mod retention;
mod run;
mod schedule;
mod signals;
mod start;
mod wait;
mod webhook;
pub mod wire;

pub use process::role::Role;
pub use start::{Server, ServerOptions, StartError};
