//! What measurements share: processor time, a database with tenants and backlogs, the service over it, sums over
//! samples.

pub(crate) mod cpu;
pub(crate) mod served;
pub(crate) mod stats;
pub(crate) mod world;
