//! DELAY: waits for a duration, or until a time.
//!
//! Invariants
//! - Exactly one of `for` and `until` is set, and the wait is never longer than [`LONGEST`].
//! - An `until` in the past is due immediately.
//!
//! Not here: waiting (the engine parks the run).

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::registry::Spec;
use super::schema::{duration, late, object};
use crate::definition::Manner;
use crate::definition::fields::Fields;
use crate::run::failure::{Class, Failure};

/// The longest wait: as long as an execution may live.
pub const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Config {
    For(Duration),
    Until(Timestamp),
}

impl Config {
    /// How long a wait that starts now lasts.
    pub fn wait(self, now: Timestamp) -> Result<Duration, Failure> {
        let refuse = || Failure::new(Class::ValidationError, "/until: is more than 30d away");
        let last = now.checked_add(LONGEST).map_err(|_| refuse())?;
        let due = match self {
            Config::For(wait) => now.checked_add(wait).map_err(|_| refuse())?,
            Config::Until(at) => at.max(now),
        };
        if due > last { Err(refuse()) } else { Ok(Duration::try_from(due.duration_since(now)).unwrap_or_default()) }
    }
}

pub(super) const FIELDS: &[&str] = &["for", "until"];

/// The description of this kind.
pub(super) const SPEC: Spec = Spec::new(
    "DELAY",
    Manner::Waits,
    "Waits for a duration, or until a time; the run needs no process during the wait.",
);

/// JSON Schema of `with`.
pub fn schema() -> Value {
    let time = json!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]" });
    let mut schema = object(
        &[],
        &[
            late("for", "How long, such as 5s, 1m30s or 2h; at most 30d.", duration()),
            late("until", "An RFC 3339 time such as 2030-01-31T09:00:00Z, at most 30d away.", time),
        ],
    );
    schema["oneOf"] = json!([{ "required": ["for"] }, { "required": ["until"] }]);
    schema
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    match (fields.get("for"), fields.get("until")) {
        (Some(_), None) => fields.duration("for", LONGEST).map(Config::For),
        (None, Some(_)) => {
            let at = fields.text("until")?.parse();
            if at.is_err() {
                fields.wrong("until", "must be an RFC 3339 time such as 2030-01-31T09:00:00Z");
            }
            at.ok().map(Config::Until)
        }
        (None, None) => {
            fields.require("for");
            None
        }
        (Some(_), Some(_)) => {
            fields.wrong("until", "give either for or until, not both");
            None
        }
    }
}
