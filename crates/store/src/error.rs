//! Store errors, grouped by what the caller does about them.
//!
//! Invariants
//! - The driver's error is kept as the source of the error; no part of it reaches a client.
//! - The kind alone decides whether a batch is repeated whole or halved (`batch`).
//! - Only this file maps an SQLSTATE to a kind.
//! - If `is_answer` is false for an error, the error says nothing about the rows. Code that acts for a run then repeats
//!   the statement. It never ends, repeats or aborts work because of such an error.

use tokio_postgres::error::SqlState;

/// The kinds of error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such row, or this caller may not see it.
    #[error("not found")]
    NotFound,
    /// Another request or process acted first: for example, a claim was lost or a name is in use.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The database cannot run the statement now; the caller may try again later.
    #[error("the database is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database or the driver refused the data (SQLSTATE classes 21, 22, 23, 54). Trying again does not help.
    #[error("the database refused the data ({code}{})",
        constraint.as_ref().map(|c| format!(", {c}")).unwrap_or_default())]
    Refused {
        code: String,
        constraint: Option<String>,
        #[source]
        source: tokio_postgres::Error,
    },
    /// A stored row is not valid.
    #[error("a stored row is corrupt: {0}")]
    Corrupt(String),
    /// A statement of this crate is wrong.
    #[error("a database statement failed")]
    Statement(#[source] tokio_postgres::Error),
}

impl Error {
    /// May the same call succeed later?
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable(_))
    }

    /// Did the database answer? If false, the database is unreachable or could not run the statement, and nothing is
    /// known about the rows.
    pub fn is_answer(&self) -> bool {
        match self {
            Error::NotFound | Error::Conflict(_) | Error::Refused { .. } | Error::Corrupt(_) => true,
            Error::Unavailable(_) | Error::Statement(_) => false,
        }
    }

    /// Was the data refused by this constraint or index?
    pub fn refused_by(&self, name: &str) -> bool {
        matches!(self, Error::Refused { constraint: Some(constraint), .. } if constraint == name)
    }

    /// The message that the database returned with a refusal, for errors that Forebay's own SQL functions raise.
    pub fn database_message(&self) -> Option<String> {
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

/// What an SQLSTATE means for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The same call may succeed later.
    Transient,
    /// The data cannot be stored, now or later.
    Data,
    /// The statement could not run as it is written.
    Statement,
}

/// Maps an SQLSTATE by its class.
fn meaning(code: &str) -> Meaning {
    match code.get(..2).unwrap_or_default() {
        // 08 connection, 25 transaction state (a standby, an idle transaction that was terminated), 40 rollback and
        // deadlock, 53 resources and connection slots, 55 locks, 57 shutdown and statement timeout, 58 system error.
        "08" | "25" | "40" | "53" | "55" | "57" | "58" => Meaning::Transient,
        "21" | "22" | "23" | "54" => Meaning::Data,
        _ => Meaning::Statement,
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(database) = error.as_db_error() else { return driver_error(error) };
        let code = database.code().code().to_owned();
        match meaning(&code) {
            Meaning::Transient => Error::Unavailable(Box::new(error)),
            Meaning::Data => {
                let constraint = database.constraint().map(str::to_owned);
                Error::Refused { code, constraint, source: error }
            }
            Meaning::Statement => Error::Statement(error),
        }
    }
}

/// The driver distinguishes its errors only by their text. A value that cannot be decoded or encoded is not an outage,
/// so trying again does not help.
fn driver_error(error: tokio_postgres::Error) -> Error {
    let text = error.to_string();
    let begins = |words: &[&str]| words.iter().any(|words| text.starts_with(words));
    if begins(&["error deserializing column", "invalid column"]) {
        return Error::Corrupt(text);
    }
    if begins(&["error serializing parameter", "error encoding message to server"]) {
        return Error::Refused { code: "driver".to_owned(), constraint: None, source: error };
    }
    Error::Unavailable(Box::new(error))
}

impl From<deadpool_postgres::PoolError> for Error {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(error) => error.into(),
            other => Error::Unavailable(Box::new(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transient_sqlstate_class_is_unavailable() {
        let transient = [
            SqlState::CONNECTION_FAILURE,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::DISK_FULL,
            SqlState::OUT_OF_MEMORY,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::OBJECT_IN_USE,
            SqlState::QUERY_CANCELED,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::IO_ERROR,
        ];
        for state in transient {
            assert_eq!(meaning(state.code()), Meaning::Transient, "{state:?}");
        }
        let data =
            [SqlState::UNIQUE_VIOLATION, SqlState::CHARACTER_NOT_IN_REPERTOIRE, SqlState::PROGRAM_LIMIT_EXCEEDED];
        for state in data {
            assert_eq!(meaning(state.code()), Meaning::Data, "{state:?}");
        }
        for state in [SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_PASSWORD, SqlState::INTERNAL_ERROR] {
            assert_eq!(meaning(state.code()), Meaning::Statement, "{state:?}");
        }
    }

    #[test]
    fn only_an_error_about_the_rows_is_an_answer() {
        let away = Error::Unavailable("gone".into());
        assert!(!away.is_answer() && Error::NotFound.is_answer() && Error::Corrupt("a row".to_owned()).is_answer());
    }
}
