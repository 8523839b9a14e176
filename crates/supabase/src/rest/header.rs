//! The preferences in the headers of a request: one row or a list, the changed rows, a count, a limit.
//!
//! Invariants
//! - A preference that protects a write (`max-affected`, `tx=rollback`) is applied. An unknown preference is ignored,
//!   as HTTP requires.

use kernel::job::query::{MOST_ROWS, WriteDecision};

use super::RestError;

/// The media type with which a client requests a single row instead of a list.
pub const SINGLE_OBJECT: &str = "application/vnd.pgrst.object+json";
const LISTS: [&str; 4] = ["*/*", "application/*", "application/json", "application/vnd.pgrst.array+json"];

/// The form of the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// Return exactly one row, as an object instead of a list.
    pub one: bool,
    /// Return the changed rows in the response.
    pub rows: bool,
    /// Return the total number of matching rows.
    pub count: bool,
    /// Roll the update back after it ran, so that nothing changes.
    pub rollback: bool,
    /// The largest number of rows that the update may change.
    most: Option<u64>,
}

impl Preferences {
    /// Reads the header `Accept` and all headers `Prefer`.
    pub fn read<'a>(accept: Option<&str>, prefer: impl Iterator<Item = &'a str>) -> Result<Preferences, RestError> {
        let mut preferences = Preferences { one: is_one(accept)?, ..Preferences::default() };
        let mut strict = false;
        for preference in prefer.flat_map(|line| line.split(',')).map(str::trim) {
            match preference.split_once('=').unwrap_or((preference, "")) {
                ("return", how) => preferences.rows = how == "representation",
                ("count", _) => preferences.count = true,
                ("tx", how) => preferences.rollback = how == "rollback",
                ("handling", how) => strict = how == "strict",
                ("max-affected", most) => preferences.most = most.parse().ok(),
                _ => {}
            }
        }
        // As in PostgREST, the limit applies only with handling=strict.
        preferences.most = preferences.most.filter(|_| strict);
        Ok(preferences)
    }

    /// Refuses a response with this many rows if the client requested exactly one.
    pub fn check_rows(&self, rows: u64) -> Result<(), RestError> {
        if self.one && rows != 1 { Err(RestError::NotOne { rows }) } else { Ok(()) }
    }

    /// Decides whether an update that changed this many rows is committed or rolled back. An error also rolls it back.
    pub fn decide(&self, rows: u64) -> Result<WriteDecision, RestError> {
        let most = self.most.unwrap_or(u64::MAX).min(MOST_ROWS.into());
        if rows > most {
            return Err(RestError::TooMany { rows, most });
        }
        self.check_rows(rows)?;
        Ok(if self.rollback { WriteDecision::RollBack } else { WriteDecision::Commit })
    }
}

fn is_one(accept: Option<&str>) -> Result<bool, RestError> {
    let accept = accept.unwrap_or("*/*");
    let mut types = accept.split(',').map(|part| part.split(';').next().unwrap_or_default().trim());
    if types.clone().any(|part| part == SINGLE_OBJECT) {
        return Ok(true);
    }
    match types.any(|part| LISTS.contains(&part) || part.is_empty()) {
        true => Ok(false),
        false => Err(RestError::MediaType(accept.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(accept: Option<&str>, prefer: &[&str]) -> Preferences {
        Preferences::read(accept, prefer.iter().copied()).expect("headers")
    }

    #[test]
    fn headers_set_the_form_of_the_response() {
        let plain = Preferences::default();
        assert_eq!(read(None, &[]), plain);
        assert_eq!(read(Some("*/*"), &["return=minimal", "respond-async"]), plain);
        assert_eq!(
            read(Some(SINGLE_OBJECT), &["return=representation"]),
            Preferences { one: true, rows: true, ..plain }
        );
        assert_eq!(read(Some("text/html, application/json;q=0.9"), &["count=exact, return=representation"]), {
            Preferences { count: true, rows: true, ..plain }
        });
        assert_eq!(read(None, &["max-affected=1"]), plain);
        assert_eq!(read(None, &["handling=strict, max-affected=1", "tx=rollback"]), {
            Preferences { most: Some(1), rollback: true, ..plain }
        });
        for accept in ["text/csv", "application/vnd.pgrst.plan+json; for=\"application/json\"", "application/geo+json"]
        {
            assert!(Preferences::read(Some(accept), std::iter::empty()).is_err(), "{accept}");
        }
    }

    #[test]
    fn an_update_of_the_wrong_number_of_rows_is_rolled_back() {
        let (one, bound) = (read(Some(SINGLE_OBJECT), &[]), read(None, &["handling=strict,max-affected=2"]));
        assert_eq!(one.decide(1), Ok(WriteDecision::Commit));
        assert_eq!(one.decide(0), Err(RestError::NotOne { rows: 0 }));
        assert_eq!(one.decide(2), Err(RestError::NotOne { rows: 2 }));
        assert_eq!(bound.decide(2), Ok(WriteDecision::Commit));
        assert_eq!(bound.decide(3), Err(RestError::TooMany { rows: 3, most: 2 }));
        assert_eq!(Preferences::default().decide(0), Ok(WriteDecision::Commit));
        assert_eq!(Preferences::default().decide(1001), Err(RestError::TooMany { rows: 1001, most: 1000 }));
        assert_eq!(read(None, &["tx=rollback"]).decide(1), Ok(WriteDecision::RollBack));
    }
}
