//! Workspaces: their tiers, and which names and limits they may have.
//!
//! Invariants
//! - The limits that apply are those in the table `tier` of the database. This file has only their initial values.
//! - A name looks like no other name: it has no characters that readers cannot see.
//!
//! Not here: counting the slots in use (`store`, under the shard's lock).

/// The initial limits of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    pub name: &'static str,
    /// How many executions may hold a slot at once.
    pub max_running: i32,
    /// How many executions may wait, unless the workspace or a setting overrides the number.
    pub max_backlog: i32,
}

/// The tiers of a new installation.
pub const SEEDED: [Tier; 3] = [
    Tier { name: "FREE", max_running: 1, max_backlog: 10_000 },
    Tier { name: "PRO", max_running: 5, max_backlog: 100_000 },
    Tier { name: "ENTERPRISE", max_running: 20, max_backlog: 1_000_000 },
];

/// The largest `limit`, and the largest `weight`, of a workspace.
const MAX_LIMIT: i32 = 100_000;
const MAX_WEIGHT: i16 = 100;

/// Why a name or a limit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWorkspace {
    #[error("must have 1 to 200 visible characters, without direction marks and without spaces at either end")]
    Name,
    #[error("must be between 0 and {MAX_LIMIT}")]
    Limit,
    #[error("must be between 1 and {MAX_WEIGHT}")]
    Weight,
    #[error("must be 0 or greater")]
    Backlog,
}

/// Checks the name of a workspace, a definition or a key.
pub fn check_name(name: &str) -> Result<(), InvalidWorkspace> {
    let fine = (1..=200).contains(&name.chars().count()) && !name.chars().any(is_invisible) && name.trim() == name;
    if fine { Ok(()) } else { Err(InvalidWorkspace::Name) }
}

/// Control characters, and characters that make a text look like another: direction marks and zero-width spaces.
/// Joiners are allowed: scripts and emoji need them.
fn is_invisible(c: char) -> bool {
    let misleads = matches!(c,
        '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    c.is_control() || misleads
}

/// Checks how many executions may hold a slot at once.
pub fn check_limit(limit: i32) -> Result<(), InvalidWorkspace> {
    if (0..=MAX_LIMIT).contains(&limit) { Ok(()) } else { Err(InvalidWorkspace::Limit) }
}

/// Checks the share of the workspace when workspaces take turns.
pub fn check_weight(weight: i16) -> Result<(), InvalidWorkspace> {
    if (1..=MAX_WEIGHT).contains(&weight) { Ok(()) } else { Err(InvalidWorkspace::Weight) }
}

/// Checks how many executions may wait.
pub fn check_backlog(most: i32) -> Result<(), InvalidWorkspace> {
    if most >= 0 { Ok(()) } else { Err(InvalidWorkspace::Backlog) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_only_visible_characters() {
        let longest = "ä".repeat(200);
        for name in ["a", "Ünïted — 2", "क्\u{200d}ष", longest.as_str()] {
            assert_eq!(check_name(name), Ok(()), "{name:?}");
        }
        let too_long = "ä".repeat(201);
        for name in ["", " a", "a ", "a\tb", "a\0", "a\u{202e}b", "\u{feff}a", "a\u{200b}", too_long.as_str()] {
            assert_eq!(check_name(name), Err(InvalidWorkspace::Name), "{name:?}");
        }
    }

    #[test]
    fn limits_have_bounds() {
        assert_eq!(
            [-1, 0, MAX_LIMIT, MAX_LIMIT + 1].map(|limit| check_limit(limit).is_ok()),
            [false, true, true, false]
        );
        assert_eq!(
            [0, 1, MAX_WEIGHT, MAX_WEIGHT + 1].map(|weight| check_weight(weight).is_ok()),
            [false, true, true, false]
        );
        assert_eq!([-1, 0, i32::MAX].map(|most| check_backlog(most).is_ok()), [false, true, true]);
    }
}
