//! The service: HTTP in front, background loops behind.

pub mod wire;
