//! The protocol of the Supabase client: its socket frames and its table queries.
//!
//! Invariants
//! - The code is pure: it converts between text and the kernel's types, and does no IO.
//! - A part of the protocol that Forebay does not support is refused with a reason, never ignored.
//!
//! Not here: the published table and queries of it (`kernel::job`), statements (`store::job`), sockets and
//! requests (`server::http`).

pub mod binding;
pub mod filter;
pub mod frame;
pub mod payload;
pub mod rest;
