//! What a request's headers ask of its answer: one row or a list, the changed rows, a count, a bound.
//!
//! Invariants
//! - A preference that guards a write (`max-affected`, `tx=rollback`) is kept; one that is not known is left alone, as
//!   HTTP has it.

use kernel::job::query::{MOST_ROWS, Verdict};

use super::Refused;

/// The media type of a single row.
pub const ONE: &str = "application/vnd.pgrst.object+json";
const LISTS: [&str; 4] = ["*/*", "application/*", "application/json", "application/vnd.pgrst.array+json"];

/// How an answer is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Exactly one row, as an object.
    pub one: bool,
    /// The rows that were changed, rather than nothing.
    pub rows: bool,
    /// How many rows there are in all.
    pub count: bool,
    /// Nothing is to stay changed.
    pub rollback: bool,
    /// No more rows than these are to be changed.
    most: Option<u64>,
}

impl Wanted {
    /// Reads `Accept`, and every `Prefer`.
    pub fn read<'a>(accept: Option<&str>, prefer: impl Iterator<Item = &'a str>) -> Result<Wanted, Refused> {
        let mut wanted = Wanted { one: is_one(accept)?, ..Wanted::default() };
        let mut strict = false;
        for preference in prefer.flat_map(|line| line.split(',')).map(str::trim) {
            match preference.split_once('=').unwrap_or((preference, "")) {
                ("return", how) => wanted.rows = how == "representation",
                ("count", _) => wanted.count = true,
                ("tx", how) => wanted.rollback = how == "rollback",
                ("handling", how) => strict = how == "strict",
                ("max-affected", most) => wanted.most = most.parse().ok(),
                _ => {}
            }
        }
        // As PostgREST has it: a bound is one only where preferences are meant strictly.
        wanted.most = wanted.most.filter(|_| strict);
        Ok(wanted)
    }

    /// May an answer have so many rows?
    pub fn check_rows(&self, rows: u64) -> Result<(), Refused> {
        if self.one && rows != 1 { Err(Refused::NotOne { rows }) } else { Ok(()) }
    }

    /// What becomes of a change of so many rows; a refusal undoes it too.
    pub fn judge(&self, rows: u64) -> Result<Verdict, Refused> {
        let most = self.most.unwrap_or(u64::MAX).min(MOST_ROWS.into());
        if rows > most {
            return Err(Refused::TooMany { rows, most });
        }
        self.check_rows(rows)?;
        Ok(if self.rollback { Verdict::Undo } else { Verdict::Keep })
    }
}

fn is_one(accept: Option<&str>) -> Result<bool, Refused> {
    let accept = accept.unwrap_or("*/*");
    let mut types = accept.split(',').map(|part| part.split(';').next().unwrap_or_default().trim());
    if types.clone().any(|part| part == ONE) {
        return Ok(true);
    }
    match types.any(|part| LISTS.contains(&part) || part.is_empty()) {
        true => Ok(false),
        false => Err(Refused::MediaType(accept.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(accept: Option<&str>, prefer: &[&str]) -> Wanted {
        Wanted::read(accept, prefer.iter().copied()).expect("headers")
    }

    #[test]
    fn headers_say_how_an_answer_is_to_be() {
        let plain = Wanted::default();
        assert_eq!(read(None, &[]), plain);
        assert_eq!(read(Some("*/*"), &["return=minimal", "respond-async"]), plain);
        assert_eq!(read(Some(ONE), &["return=representation"]), Wanted { one: true, rows: true, ..plain });
        assert_eq!(read(Some("text/html, application/json;q=0.9"), &["count=exact, return=representation"]), {
            Wanted { count: true, rows: true, ..plain }
        });
        assert_eq!(read(None, &["max-affected=1"]), plain);
        assert_eq!(read(None, &["handling=strict, max-affected=1", "tx=rollback"]), {
            Wanted { most: Some(1), rollback: true, ..plain }
        });
        for accept in ["text/csv", "application/vnd.pgrst.plan+json; for=\"application/json\"", "application/geo+json"]
        {
            assert!(Wanted::read(Some(accept), std::iter::empty()).is_err(), "{accept}");
        }
    }

    #[test]
    fn a_change_of_the_wrong_number_of_rows_is_undone() {
        let (one, bound) = (read(Some(ONE), &[]), read(None, &["handling=strict,max-affected=2"]));
        assert_eq!(one.judge(1), Ok(Verdict::Keep));
        assert_eq!(one.judge(0), Err(Refused::NotOne { rows: 0 }));
        assert_eq!(one.judge(2), Err(Refused::NotOne { rows: 2 }));
        assert_eq!(bound.judge(2), Ok(Verdict::Keep));
        assert_eq!(bound.judge(3), Err(Refused::TooMany { rows: 3, most: 2 }));
        assert_eq!(Wanted::default().judge(0), Ok(Verdict::Keep));
        assert_eq!(Wanted::default().judge(1001), Err(Refused::TooMany { rows: 1001, most: 1000 }));
        assert_eq!(read(None, &["tx=rollback"]).judge(1), Ok(Verdict::Undo));
    }
}
