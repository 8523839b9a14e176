//! What a key may do: three scopes, and which keys may grant them.
//!
//! Invariants
//! - Scopes are independent: none includes another. A root key has all of them.
//! - A key can grant only scopes that it has. A second key in a request never extends what the first key may see.
//! - A key never outlives the key that created it.
//!
//! Not here: which request needs which scope (`server::http::access`), what keys look like (`store::access::key`).

pub mod secret;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::names::names;
use crate::schedule::calendar;

names! {
    /// One permission of a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Scope {
        /// Read, and change nothing.
        Read = "read",
        /// Start, cancel and rerun executions.
        Run = "run",
        /// Change definitions, and create and revoke keys.
        Manage = "manage",
    }
}

impl Scope {
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// All scopes. A root key has them.
    pub fn all() -> Scopes {
        Scope::ALL.into_iter().collect()
    }

    pub fn allows(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// May a key with these scopes grant the scopes `others`?
    pub fn covers(self, others: Scopes) -> bool {
        others.0 & !self.0 == 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The scopes, in the order of `Scope::ALL`.
    pub fn list(self) -> Vec<Scope> {
        Scope::ALL.into_iter().filter(|scope| self.allows(*scope)).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

/// A new key would outlive the key that creates it, which expires at this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiryTooLate(pub Timestamp);

/// When a new key expires: at the requested time, or else when the key that creates it expires. None means never.
pub fn child_expiry(maker: Option<Timestamp>, asked: Option<Timestamp>) -> Result<Option<Timestamp>, ExpiryTooLate> {
    match (maker, asked) {
        (Some(maker), Some(asked)) if asked > maker => Err(ExpiryTooLate(maker)),
        (maker, asked) => Ok(asked.or(maker)),
    }
}

/// A key must expire in the future, at a time that can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be in the future, before the year 9999")]
pub struct InvalidExpiry;

/// Checks when a new key expires.
pub fn check_expiry(at: Timestamp, now: Timestamp) -> Result<(), InvalidExpiry> {
    if at > now && calendar::check_at(at).is_ok() { Ok(()) } else { Err(InvalidExpiry) }
}

/// May the second key of a request (`shown`) decide what the request sees, instead of its first key (`own`)? Each
/// argument is the workspace of the key; none for a root key.
pub fn is_within(shown: Option<WorkspaceId>, own: Option<WorkspaceId>) -> bool {
    own.is_none() || shown == own
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All possible sets of scopes.
    fn sets() -> impl Iterator<Item = Scopes> {
        (0..8).map(Scopes)
    }

    #[test]
    fn a_set_covers_another_when_it_has_all_of_it_and_only_then() {
        for (holder, wanted) in sets().flat_map(|holder| sets().map(move |wanted| (holder, wanted))) {
            let has_all = wanted.list().into_iter().all(|scope| holder.allows(scope));
            assert_eq!(holder.covers(wanted), has_all, "{holder:?} {wanted:?}");
        }
        assert!(sets().all(|set| Scopes::all().covers(set)), "a root key may grant every scope");
    }

    #[test]
    fn a_key_expires_no_later_than_the_one_that_made_it() {
        let [sooner, later] = [1, 2].map(|second| Timestamp::from_second(second).expect("a time"));
        for (maker, asked, expected) in [
            (None, None, Ok(None)),
            (None, Some(later), Ok(Some(later))),
            (Some(later), None, Ok(Some(later))),
            (Some(later), Some(sooner), Ok(Some(sooner))),
            (Some(later), Some(later), Ok(Some(later))),
            (Some(sooner), Some(later), Err(ExpiryTooLate(sooner))),
        ] {
            assert_eq!(child_expiry(maker, asked), expected, "{maker:?} {asked:?}");
        }
    }

    #[test]
    fn a_key_expires_in_the_future_and_before_the_year_9999() {
        let [now, soon] = [1, 2].map(|second| Timestamp::from_second(second).expect("a time"));
        let [last, late] = ["9998-12-31T23:59:59Z", "9999-01-01T00:00:00Z"].map(|time| time.parse().expect("a time"));
        let fine = [now, soon, last, late].map(|at| check_expiry(at, now).is_ok());
        assert_eq!(fine, [false, true, true, false]);
    }

    #[test]
    fn a_set_is_what_was_put_into_it() {
        for set in sets() {
            assert_eq!(set.list().into_iter().collect::<Scopes>(), set);
            assert_eq!(set.is_empty(), set.list().is_empty());
        }
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(scope.name()), Some(scope));
            assert_eq!(serde_json::to_value(scope).expect("a text"), scope.name());
        }
        assert_eq!(Scope::parse("root"), None);
    }
}
