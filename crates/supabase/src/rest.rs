//! The small part of PostgREST's dialect in which the published table is asked and changed, as the Supabase client
//! writes it.
//!
//! Invariants
//! - Names of columns come out of the table's own list, never out of a request; values stay texts, for the database to
//!   read.
//! - What is not offered is refused, never ignored: a part of a question that is left out answers another one.
//! - An update without a filter is refused, and so is one of too many rows, after which nothing is changed.
//!
//! Not here: the statements (`store::job`), who may see which rows (their callers), requests and answers
//! (`server::http`).

pub mod change;
pub mod decode;
pub mod header;
pub mod query;

use crate::filter::Invalid;
use kernel::job::table::{SCHEMA, TABLE};

/// Why a request is refused. A client is told the code, which is PostgREST's or PostgreSQL's own, and the words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("Could not find the table '{SCHEMA}.{0}' in the schema cache")]
    Table(String),
    #[error("Only the schema {SCHEMA} is offered, not {0:?}")]
    Schema(String),
    #[error("None of these media types is available: {0}")]
    MediaType(String),
    #[error("the query string cannot be read: {0}")]
    Query(&'static str),
    #[error("{0:?} is not offered")]
    Unoffered(String),
    #[error("{name} is given twice")]
    Twice { name: &'static str },
    #[error("{name} takes a number that is not negative")]
    Number { name: &'static str },
    #[error("failed to parse order ({0})")]
    Order(String),
    #[error("column {TABLE}.{0} does not exist")]
    Column(String),
    #[error("{0}")]
    Term(Invalid),
    #[error("an update takes no {0}: it changes every row that its filters name")]
    Bounded(&'static str),
    #[error("UPDATE requires a WHERE clause")]
    Everything,
    #[error("the body is one JSON object: {0}")]
    Body(String),
    #[error("Could not find the '{0}' column of '{TABLE}' in the schema cache")]
    Unknown(String),
    #[error("permission denied for column {0} of {TABLE}")]
    Fixed(&'static str),
    #[error("Cannot coerce the result to a single JSON object")]
    NotOne { rows: u64 },
    #[error("Query result exceeds max-affected preference constraint")]
    TooMany { rows: u64, most: u64 },
}

impl Refused {
    pub fn code(&self) -> &'static str {
        match self {
            Refused::Table(_) => "PGRST205",
            Refused::Schema(_) => "PGRST106",
            Refused::MediaType(_) => "PGRST107",
            Refused::Query(_)
            | Refused::Unoffered(_)
            | Refused::Twice { .. }
            | Refused::Number { .. }
            | Refused::Order(_)
            | Refused::Bounded(_)
            | Refused::Term(_) => "PGRST100",
            Refused::Column(_) => "42703",
            Refused::Everything => "21000",
            Refused::Body(_) => "PGRST102",
            Refused::Unknown(_) => "PGRST204",
            Refused::Fixed(_) => "42501",
            Refused::NotOne { .. } => "PGRST116",
            Refused::TooMany { .. } => "PGRST124",
        }
    }

    /// The status of its answer.
    pub fn status(&self) -> u16 {
        match self {
            Refused::Table(_) => 404,
            Refused::Schema(_) | Refused::MediaType(_) | Refused::NotOne { .. } => 406,
            Refused::Fixed(_) => 403,
            _ => 400,
        }
    }

    /// What there is to say beside its words.
    pub fn details(&self) -> Option<String> {
        match self {
            Refused::NotOne { rows } => Some(format!("The result contains {rows} rows")),
            Refused::TooMany { rows, most } => {
                Some(format!("The query affects {rows} rows, and at most {most} may be; nothing was changed"))
            }
            _ => None,
        }
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Refused {
        match invalid {
            Invalid::Column(name) => Refused::Column(name),
            other => Refused::Term(other),
        }
    }
}

/// Is this the table that is offered, in the schema that is? One that exists reads the same as one that does not.
pub fn check_table(table: &str, profile: Option<&str>) -> Result<(), Refused> {
    if let Some(other) = profile.filter(|profile| *profile != SCHEMA) {
        return Err(Refused::Schema(other.to_owned()));
    }
    if table == TABLE { Ok(()) } else { Err(Refused::Table(table.to_owned())) }
}
