//! Tests of the store against a real PostgreSQL.

mod cancel;
mod checks;
mod claim;
mod claim_begin;
mod claim_races;
mod complete;
mod embedded;
mod enqueue;
mod errors;
mod explain;
mod gates;
mod keys;
mod lists;
mod migrations;
mod orphans;
mod parking;
mod plans;
mod process;
mod record;
mod source_documents;
mod sql_contract;
mod statements;
mod support;
mod takeover;
