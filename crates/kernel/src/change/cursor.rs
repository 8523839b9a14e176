//! Where a reader of the change log stands: nothing is missed, nothing comes twice.
//!
//!     drained, visible ──▶ fresh: told at once to those who follow live
//!            │ every transaction at or below it has ended
//!            └──────────▶ settled: told in (transaction, sequence) order to those who may come back
//!
//! Invariants
//! - What lies below `low` is finished: nothing new can appear there. What lies at or above it is looked at again, less
//!   what was drained before.
//! - A late committer arrives when it commits, and nobody waits for it but the settled order.
//!
//! Not here: the statement, which must read rows and horizon in one snapshot (`store::feed`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A place in the log: a transaction, and a sequence number within it. As text `xid:seq`, which is a stream's event id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub xid: u64,
    pub seq: i64,
}

/// How many numbers belong to one entry of the log: the changes of one statement are numbered from its own on.
const SPAN: i64 = 1 << 20;

/// A text that is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event id is two numbers with a colon between them")]
pub struct NoPlace;

impl Place {
    /// Before the first entry of a transaction.
    pub fn before(xid: u64) -> Place {
        Place { xid, seq: 0 }
    }

    /// The number of the entry that this place is in.
    pub fn entry(self) -> i64 {
        self.seq - self.seq % SPAN
    }

    /// The last place that an entry may have.
    pub fn end_of_entry(self) -> Place {
        Place { seq: self.entry() + SPAN - 1, ..self }
    }

    /// Is all that follows this place still in a log that was pruned up to `gone`, and ends below `horizon`? A place
    /// beyond the horizon is of another database.
    pub fn is_kept(self, gone: u64, horizon: u64) -> bool {
        self.xid > gone && self.xid <= horizon
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.xid, self.seq)
    }
}

impl FromStr for Place {
    type Err = NoPlace;
    fn from_str(text: &str) -> Result<Place, NoPlace> {
        let (xid, seq) = text.split_once(':').ok_or(NoPlace)?;
        let (xid, seq) = (xid.parse().map_err(|_| NoPlace)?, seq.parse().map_err(|_| NoPlace)?);
        // The database's numbers are signed where this is asked of it.
        let is_one = xid <= i64::MAX.unsigned_abs() && seq >= 0;
        if is_one { Ok(Place { xid, seq }) } else { Err(NoPlace) }
    }
}

/// One reader's state: how far everything is finished, and what it drained above that.
#[derive(Clone, Debug)]
pub struct Cursor<T> {
    low: u64,
    unsettled: BTreeMap<Place, T>,
}

impl<T: Clone> Cursor<T> {
    /// Begins at a horizon: history is not told.
    pub fn new(horizon: u64) -> Cursor<T> {
        Cursor { low: horizon, unsettled: BTreeMap::new() }
    }

    pub fn low(&self) -> u64 {
        self.low
    }

    /// How many changes wait for older transactions to end.
    pub fn waiting(&self) -> usize {
        self.unsettled.len()
    }

    /// The entries that were drained at or above `low`: not to be read again.
    pub fn drained(&self) -> Vec<i64> {
        let mut entries: Vec<i64> = self.unsettled.keys().map(|place| place.entry()).collect();
        entries.dedup();
        entries
    }

    /// Takes what one statement found, in order; `all` if there was no more. Answers what is settled by it, in order.
    pub fn take(&mut self, found: &[(Place, T)], horizon: u64, all: bool) -> Vec<T> {
        self.unsettled.extend(found.iter().cloned());
        // If there was more, only what lies before the last transaction met is known to be whole.
        let whole = match found.last() {
            Some((last, _)) if !all => last.xid.min(horizon),
            _ => horizon,
        };
        self.low = self.low.max(whole);
        let still = self.unsettled.split_off(&Place::before(self.low));
        std::mem::replace(&mut self.unsettled, still).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first change of the entry of this number.
    fn at(xid: u64, entry: i64) -> (Place, i64) {
        (Place { xid, seq: entry * SPAN }, entry)
    }

    #[test]
    fn a_late_committer_comes_late_and_settles_in_its_place() {
        let mut cursor = Cursor::new(10);
        // 10 is open; 11 and 12 have committed, and drew their numbers before and after it.
        assert_eq!(cursor.take(&[at(11, 1), at(12, 3)], 10, true), Vec::<i64>::new());
        assert_eq!((cursor.low(), cursor.drained()), (10, vec![SPAN, 3 * SPAN]));
        assert_eq!(cursor.take(&[at(10, 2)], 13, true), [2, 1, 3]);
        assert_eq!((cursor.low(), cursor.drained()), (13, vec![]));
    }

    #[test]
    fn a_page_that_was_cut_short_settles_only_what_is_whole() {
        let mut cursor = Cursor::new(10);
        assert_eq!(cursor.take(&[at(10, 1), at(11, 2)], 20, false), [1]);
        assert_eq!((cursor.low(), cursor.drained()), (11, vec![2 * SPAN]));
        assert_eq!(cursor.take(&[at(11, 3)], 20, true), [2, 3]);
        assert_eq!(cursor.low(), 20);
    }

    #[test]
    fn the_changes_of_one_entry_are_drained_together() {
        let mut cursor = Cursor::new(10);
        let of = |n| (Place { xid: 10, seq: 7 * SPAN + n }, n);
        assert_eq!(cursor.take(&[of(0), of(1), of(2)], 10, true), Vec::<i64>::new());
        assert_eq!(cursor.drained(), [7 * SPAN]);
        assert_eq!(cursor.take(&[], 11, true), [0, 1, 2]);
    }

    #[test]
    fn a_horizon_never_goes_back() {
        let mut cursor = Cursor::<i64>::new(10);
        cursor.take(&[], 9, true);
        assert_eq!(cursor.low(), 10);
    }

    #[test]
    fn places_are_read_as_they_are_written() {
        for (text, place) in [
            ("12:3", Ok(Place { xid: 12, seq: 3 })),
            ("12:0", Ok(Place::before(12))),
            ("12", Err(NoPlace)),
            ("-1:3", Err(NoPlace)),
            ("1:-3", Err(NoPlace)),
            ("18446744073709551615:1", Err(NoPlace)),
            ("", Err(NoPlace)),
        ] {
            assert_eq!(text.parse::<Place>(), place, "{text}");
        }
        assert_eq!(Place { xid: 12, seq: 3 }.to_string(), "12:3");
    }

    #[test]
    fn what_was_pruned_or_never_was_is_not_kept() {
        let place = Place { xid: 12, seq: 3 };
        for (gone, horizon, kept) in [(11, 20, true), (12, 20, false), (11, 12, true), (3, 11, false)] {
            assert_eq!(place.is_kept(gone, horizon), kept, "{gone} {horizon}");
        }
    }
}
