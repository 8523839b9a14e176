//! The part of PostgREST's protocol with which the Supabase client queries and updates the published table.
//!
//! Invariants
//! - Column names in statements come from the list of columns in `kernel::job::table`, never from a request. Values
//!   stay text; the database parses them.
//! - An unsupported part of a query is refused. If it were ignored, the client would get wrong rows.
//! - An update without a filter is refused. An update that would change too many rows is refused and rolled back.
//!
//! Not here: the statements (`store::job`), which workspace a key may read, and HTTP itself (`server::http`).

pub mod change;
pub mod decode;
pub mod header;
pub mod query;

use crate::filter::FilterError;
use kernel::job::table::{SCHEMA, TABLE};

/// Why a request is refused. The client receives the message and a code of PostgREST or PostgreSQL. Messages that have
/// a code of PostgREST are PostgREST's own, because clients compare them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestError {
    #[error("Could not find the table '{SCHEMA}.{0}' in the schema cache")]
    Table(String),
    #[error("Only the schema {SCHEMA} is available, not {0:?}")]
    Schema(String),
    #[error("None of these media types is available: {0}")]
    MediaType(String),
    #[error("the query string cannot be parsed: {0}")]
    Query(&'static str),
    #[error("{0:?} is not supported")]
    Unsupported(String),
    #[error("{name} is given twice")]
    Twice { name: &'static str },
    #[error("{name} must be a number that is not negative")]
    Number { name: &'static str },
    #[error("failed to parse order ({0})")]
    Order(String),
    #[error("column {TABLE}.{0} does not exist")]
    Column(String),
    #[error("{0}")]
    Term(FilterError),
    #[error("an update allows no {0}: it changes every row that matches its filters")]
    LimitInUpdate(&'static str),
    #[error("UPDATE requires a WHERE clause")]
    NoFilter,
    #[error("the body must be one JSON object: {0}")]
    Body(String),
    #[error("Could not find the '{0}' column of '{TABLE}' in the schema cache")]
    UnknownBodyColumn(String),
    #[error("permission denied for column {0} of {TABLE}")]
    ReadOnlyColumn(&'static str),
    #[error("Cannot coerce the result to a single JSON object")]
    NotOne { rows: u64 },
    #[error("Query result exceeds max-affected preference constraint")]
    TooMany { rows: u64, most: u64 },
}

impl RestError {
    /// The code of PostgREST, or the SQLSTATE of PostgreSQL, for this error.
    pub fn code(&self) -> &'static str {
        match self {
            RestError::Table(_) => "PGRST205",
            RestError::Schema(_) => "PGRST106",
            RestError::MediaType(_) => "PGRST107",
            RestError::Query(_)
            | RestError::Unsupported(_)
            | RestError::Twice { .. }
            | RestError::Number { .. }
            | RestError::Order(_)
            | RestError::LimitInUpdate(_)
            | RestError::Term(_) => "PGRST100",
            RestError::Column(_) => "42703",
            RestError::NoFilter => "21000",
            RestError::Body(_) => "PGRST102",
            RestError::UnknownBodyColumn(_) => "PGRST204",
            RestError::ReadOnlyColumn(_) => "42501",
            RestError::NotOne { .. } => "PGRST116",
            RestError::TooMany { .. } => "PGRST124",
        }
    }

    /// The HTTP status of the error.
    pub fn status(&self) -> u16 {
        match self {
            RestError::Table(_) => 404,
            RestError::Schema(_) | RestError::MediaType(_) | RestError::NotOne { .. } => 406,
            RestError::ReadOnlyColumn(_) => 403,
            _ => 400,
        }
    }

    /// The `details` of the error.
    pub fn details(&self) -> Option<String> {
        match self {
            RestError::NotOne { rows } => Some(format!("The result contains {rows} rows")),
            RestError::TooMany { rows, most } => {
                Some(format!("The query affects {rows} rows, and the limit is {most}; nothing was changed"))
            }
            _ => None,
        }
    }
}

impl From<FilterError> for RestError {
    fn from(invalid: FilterError) -> RestError {
        match invalid {
            FilterError::Column(name) => RestError::Column(name),
            other => RestError::Term(other),
        }
    }
}

/// Refuses every table but the published one. A table that exists gets the same error as one that does not, so that
/// clients cannot find out which tables exist.
pub fn check_table(table: &str, profile: Option<&str>) -> Result<(), RestError> {
    if let Some(other) = profile.filter(|profile| *profile != SCHEMA) {
        return Err(RestError::Schema(other.to_owned()));
    }
    if table == TABLE { Ok(()) } else { Err(RestError::Table(table.to_owned())) }
}
