//! What a key may do: three scopes, and who may hand them on.
//!
//! Invariants
//! - Scopes are independent: none includes another. A root key has all of them.
//! - Nobody hands on more than they hold, and a key that is shown beside another never widens what that one may see.
//! - A key that another key made works no longer than that one.
//!
//! Not here: which request needs which scope (`server::http::access`), what keys look like (`store::access::key`).

pub mod secret;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;

/// One kind of thing that a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Look, and change nothing.
    Read,
    /// Start, cancel and repeat executions.
    Run,
    /// Change definitions, and make and revoke keys.
    Manage,
}

impl Scope {
    pub const ALL: [Scope; 3] = [Scope::Read, Scope::Run, Scope::Manage];

    /// The name as stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Run => "run",
            Scope::Manage => "manage",
        }
    }

    pub fn parse(text: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == text)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// What a root key has.
    pub fn all() -> Scopes {
        Scope::ALL.into_iter().collect()
    }

    pub fn allow(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// May whoever holds these hand those on?
    pub fn cover(self, others: Scopes) -> bool {
        others.0 & !self.0 == 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The scopes, in their order.
    pub fn list(self) -> Vec<Scope> {
        Scope::ALL.into_iter().filter(|scope| self.allow(*scope)).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

/// A key was to work longer than the key that makes it, which expires then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlives(pub Timestamp);

/// When a new key expires: as asked, and no later than the key that makes it. Both are none for never.
pub fn child_expiry(maker: Option<Timestamp>, asked: Option<Timestamp>) -> Result<Option<Timestamp>, Outlives> {
    match (maker, asked) {
        (Some(maker), Some(asked)) if asked > maker => Err(Outlives(maker)),
        (maker, asked) => Ok(asked.or(maker)),
    }
}

/// May a key be used in the place of another that it is shown beside? Both are known by their workspace, none for a
/// root key.
pub fn is_within(shown: Option<WorkspaceId>, own: Option<WorkspaceId>) -> bool {
    own.is_none() || shown == own
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every set there is.
    fn sets() -> impl Iterator<Item = Scopes> {
        (0..8).map(Scopes)
    }

    #[test]
    fn a_set_covers_another_when_it_has_all_of_it_and_only_then() {
        for (holder, wanted) in sets().flat_map(|holder| sets().map(move |wanted| (holder, wanted))) {
            let has_all = wanted.list().into_iter().all(|scope| holder.allow(scope));
            assert_eq!(holder.cover(wanted), has_all, "{holder:?} {wanted:?}");
        }
        assert!(sets().all(|set| Scopes::all().cover(set)), "a root key may hand on anything");
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
            (Some(sooner), Some(later), Err(Outlives(sooner))),
        ] {
            assert_eq!(child_expiry(maker, asked), expected, "{maker:?} {asked:?}");
        }
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
