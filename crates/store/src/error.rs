//! What can go wrong in the store, by what the caller does about it.
//!
//! Invariants
//! - The driver's error stays behind ours, as source; nothing of it reaches a client.
//! - Whether a batch is repeated whole or by halves follows from the kind alone (`batch`).

use tokio_postgres::error::SqlState;

/// The kinds of trouble.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such row, for this caller.
    #[error("not found")]
    NotFound,
    /// Somebody else decided first: a claim was lost, a name is taken.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The database cannot do it now: try later.
    #[error("the database is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The data itself was refused (SQLSTATE classes 21, 22, 23, 54): trying again cannot help.
    #[error("the database refused the data ({code}{})", constraint.as_ref().map(|c| format!(", {c}")).unwrap_or_default())]
    Refused {
        code: String,
        constraint: Option<String>,
        #[source]
        source: tokio_postgres::Error,
    },
    /// A stored row is not what it must be.
    #[error("a stored row is corrupt: {0}")]
    Corrupt(String),
    /// A statement of ours is wrong.
    #[error("a database statement failed")]
    Statement(#[source] tokio_postgres::Error),
}

impl Error {
    /// Is this worth repeating as it is?
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable(_))
    }

    /// Was the data refused by this constraint or index?
    pub fn refused_by(&self, name: &str) -> bool {
        matches!(self, Error::Refused { constraint: Some(constraint), .. } if constraint == name)
    }

    /// What the database said, of a refusal that a function of ours worded.
    pub fn told(&self) -> Option<String> {
        let Error::Refused { source, .. } = self else { return None };
        source.as_db_error().map(|error| error.message().to_owned())
    }

    /// Did the statement give up waiting for a lock?
    pub fn is_lock_timeout(&self) -> bool {
        let Error::Unavailable(source) = self else { return false };
        let error = source.downcast_ref::<tokio_postgres::Error>();
        error.and_then(tokio_postgres::Error::code) == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(database) = error.as_db_error() else {
            // A value that cannot be read is no outage: trying again cannot help. The driver tells
            // the two apart in words only.
            let text = error.to_string();
            return match text.starts_with("error deserializing column") || text.starts_with("invalid column") {
                true => Error::Corrupt(text),
                false => Error::Unavailable(Box::new(error)),
            };
        };
        let code = database.code().code().to_owned();
        match &code[..2] {
            "08" | "25" | "40" | "53" | "55" | "57" | "58" => Error::Unavailable(Box::new(error)),
            "21" | "22" | "23" | "54" => {
                let constraint = database.constraint().map(str::to_owned);
                Error::Refused { code, constraint, source: error }
            }
            _ => Error::Statement(error),
        }
    }
}

impl From<deadpool_postgres::PoolError> for Error {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(error) => error.into(),
            other => Error::Unavailable(Box::new(other)),
        }
    }
}
