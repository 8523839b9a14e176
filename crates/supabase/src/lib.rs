//! Somebody else's protocol, spoken at the edge: the socket frames and the table queries of the Supabase client.
//!
//! Invariants
//! - Pure: text in, the kernel's types out, and back. Nothing here does IO.
//! - What the dialect has and we do not offer is refused with a reason, never ignored.
//!
//! Not here: the published table and questions about it (`kernel::job`), statements (`store::job`), sockets and
//! requests (`server::http`).

pub mod binding;
pub mod filter;
pub mod frame;
pub mod payload;
pub mod rest;
