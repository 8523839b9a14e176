//! The service: HTTP in front, background loops behind, both over one store and one engine.
//!
//! Invariants
//! - Only here is the HTTP framework, and every background loop.
//! - Loops share a shape: woken by a timer or a bare hint; look, decide, do; safe to run twice;
//!   stopped between passes; no loop dies of an error.
//!
//! Not here: arguments and environment (`app`), decisions (`kernel`), SQL (`store`).

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
pub use start::{Options, Server, StartError};
