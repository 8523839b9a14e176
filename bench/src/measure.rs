//! Shared by the measurements: processor time, cheap clients, a database with tenants and backlogs, the service over
//! it, and statistics.

pub(crate) mod connection;
pub(crate) mod cpu;
pub(crate) mod run;
pub(crate) mod served;
pub(crate) mod stats;
pub(crate) mod world;
