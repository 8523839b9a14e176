//! The cursor of a reader of the change log: the reader misses nothing and gets nothing twice.
//!
//!     read, visible ──▶ fresh: sent immediately to live subscribers
//!            │ every transaction with its id or a lower one has ended
//!            └──────────▶ settled: sent in (transaction, sequence) order to subscribers that may reconnect
//!
//! Invariants
//! - No new change can appear below the transaction id `low`. So each read begins at `low` again, and leaves out the
//!   entries that the reader has read already.
//! - A live subscriber receives a change when its transaction commits. Only the settled order waits for older
//!   transactions.
//!
//! Not here: the SQL statement (`store::feed`). It must read the rows and the horizon in one snapshot; every
//! transaction below the horizon has ended.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A position in the log: a transaction id and a sequence number. Its text form `xid:seq` is the event id
/// of an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub xid: u64,
    pub seq: i64,
}

/// How many sequence numbers an entry of the log reserves. Each change of the entry's statement uses one number.
const SPAN: i64 = 1 << 20;

/// The text is not a position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event id is two numbers with a colon between them")]
pub struct InvalidPosition;

impl Position {
    /// The position before the first entry of a transaction.
    pub fn start_of(xid: u64) -> Position {
        Position { xid, seq: 0 }
    }

    /// The first sequence number of the entry that contains this position.
    pub fn entry(self) -> i64 {
        self.seq - self.seq % SPAN
    }

    /// The last position that belongs to the same entry.
    pub fn end_of_entry(self) -> Position {
        Position { seq: self.entry() + SPAN - 1, ..self }
    }

    /// Does the log still have every change after this position? The log was pruned up to the transaction `pruned` and
    /// ends below the transaction `horizon`. A position beyond `horizon` comes from another database.
    pub fn is_retained(self, pruned: u64, horizon: u64) -> bool {
        self.xid > pruned && self.xid <= horizon
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.xid, self.seq)
    }
}

impl FromStr for Position {
    type Err = InvalidPosition;
    fn from_str(text: &str) -> Result<Position, InvalidPosition> {
        let (xid, seq) = text.split_once(':').ok_or(InvalidPosition)?;
        let (xid, seq) = (xid.parse().map_err(|_| InvalidPosition)?, seq.parse().map_err(|_| InvalidPosition)?);
        // The database compares both numbers as signed numbers, so larger ones are refused.
        let is_one = xid <= i64::MAX.unsigned_abs() && seq >= 0;
        if is_one { Ok(Position { xid, seq }) } else { Err(InvalidPosition) }
    }
}

/// The state of one reader: up to which transaction the log is settled, and the changes that were read above it.
#[derive(Clone, Debug)]
pub struct Cursor<T> {
    low: u64,
    unsettled: BTreeMap<Position, T>,
}

impl<T: Clone> Cursor<T> {
    /// A reader that begins at the transaction `horizon`: older changes are not sent.
    pub fn new(horizon: u64) -> Cursor<T> {
        Cursor { low: horizon, unsettled: BTreeMap::new() }
    }

    pub fn low(&self) -> u64 {
        self.low
    }

    /// How many changes wait for the end of older transactions.
    pub fn waiting(&self) -> usize {
        self.unsettled.len()
    }

    /// The entries at or above `low` that were read already. The next read must leave them out.
    pub fn drained(&self) -> Vec<i64> {
        let mut entries: Vec<i64> = self.unsettled.keys().map(|position| position.entry()).collect();
        entries.dedup();
        entries
    }

    /// Adds the changes that one statement found, in order. `all` means that the statement found every change. Returns
    /// the changes that are settled now, in order.
    pub fn advance(&mut self, found: &[(Position, T)], horizon: u64, all: bool) -> Vec<T> {
        self.unsettled.extend(found.iter().cloned());
        // If a limit cut the result short, only the transactions before the last one found are complete.
        let complete = match found.last() {
            Some((last, _)) if !all => last.xid.min(horizon),
            _ => horizon,
        };
        self.low = self.low.max(complete);
        let still = self.unsettled.split_off(&Position::start_of(self.low));
        std::mem::replace(&mut self.unsettled, still).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first change of the entry with this number.
    fn at(xid: u64, entry: i64) -> (Position, i64) {
        (Position { xid, seq: entry * SPAN }, entry)
    }

    #[test]
    fn a_late_commit_arrives_late_and_settles_in_order() {
        let mut cursor = Cursor::new(10);
        // Transaction 10 is open, and 11 and 12 have committed. 11 drew its sequence number before 10, and 12 after 10.
        assert_eq!(cursor.advance(&[at(11, 1), at(12, 3)], 10, true), Vec::<i64>::new());
        assert_eq!((cursor.low(), cursor.drained()), (10, vec![SPAN, 3 * SPAN]));
        assert_eq!(cursor.advance(&[at(10, 2)], 13, true), [2, 1, 3]);
        assert_eq!((cursor.low(), cursor.drained()), (13, vec![]));
    }

    #[test]
    fn a_page_that_was_cut_short_settles_only_complete_transactions() {
        let mut cursor = Cursor::new(10);
        assert_eq!(cursor.advance(&[at(10, 1), at(11, 2)], 20, false), [1]);
        assert_eq!((cursor.low(), cursor.drained()), (11, vec![2 * SPAN]));
        assert_eq!(cursor.advance(&[at(11, 3)], 20, true), [2, 3]);
        assert_eq!(cursor.low(), 20);
    }

    #[test]
    fn the_changes_of_one_entry_are_read_together() {
        let mut cursor = Cursor::new(10);
        let of = |n| (Position { xid: 10, seq: 7 * SPAN + n }, n);
        assert_eq!(cursor.advance(&[of(0), of(1), of(2)], 10, true), Vec::<i64>::new());
        assert_eq!(cursor.drained(), [7 * SPAN]);
        assert_eq!(cursor.advance(&[], 11, true), [0, 1, 2]);
    }

    #[test]
    fn a_horizon_never_goes_back() {
        let mut cursor = Cursor::<i64>::new(10);
        cursor.advance(&[], 9, true);
        assert_eq!(cursor.low(), 10);
    }

    #[test]
    fn positions_are_parsed_as_they_are_written() {
        for (text, position) in [
            ("12:3", Ok(Position { xid: 12, seq: 3 })),
            ("12:0", Ok(Position::start_of(12))),
            ("12", Err(InvalidPosition)),
            ("-1:3", Err(InvalidPosition)),
            ("1:-3", Err(InvalidPosition)),
            ("18446744073709551615:1", Err(InvalidPosition)),
            ("", Err(InvalidPosition)),
        ] {
            assert_eq!(text.parse::<Position>(), position, "{text}");
        }
        assert_eq!(Position { xid: 12, seq: 3 }.to_string(), "12:3");
    }

    #[test]
    fn a_pruned_or_foreign_position_is_not_retained() {
        let position = Position { xid: 12, seq: 3 };
        for (gone, horizon, kept) in [(11, 20, true), (12, 20, false), (11, 12, true), (3, 11, false)] {
            assert_eq!(position.is_retained(gone, horizon), kept, "{gone} {horizon}");
        }
    }
}
