//! What a node asks of the world outside: its life, and where a version has a wait.
//!
//!     OPEN ─claim▶ CLAIMED ─lose▶ OPEN      OPEN, CLAIMED ─answer▶ ANSWERED ─see▶ TAKEN
//!     OPEN, CLAIMED ─expire▶ EXPIRED        OPEN, CLAIMED ─close▶ CLOSED
//!     ANSWERED, TAKEN, EXPIRED ─reopen, for a later attempt▶ OPEN
//!
//! Invariants
//! - One answer an ask: what was answered, has expired or is closed takes none.
//! - A worker that falls silent leaves a task as it found it.
//!
//! Not here: the rows and their fences (`store::ask`), what is asked (`kind`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::{Kind, Node};
use crate::kind::for_each;

/// How an ask stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = AskStatus))]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    Open,
    /// A worker has it.
    Claimed,
    /// The run does not know yet.
    Answered,
    Taken,
    /// Its time was up first.
    Expired,
    /// Its execution ended first.
    Closed,
}

/// What may happen to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Claim,
    Lose,
    Answer,
    See,
    Expire,
    Close,
    Reopen,
}

impl Step {
    pub const ALL: [Step; 7] =
        [Step::Claim, Step::Lose, Step::Answer, Step::See, Step::Expire, Step::Close, Step::Reopen];
}

impl Status {
    pub const ALL: [Status; 6] =
        [Status::Open, Status::Claimed, Status::Answered, Status::Taken, Status::Expired, Status::Closed];

    /// The name as stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Status::Open => "OPEN",
            Status::Claimed => "CLAIMED",
            Status::Answered => "ANSWERED",
            Status::Taken => "TAKEN",
            Status::Expired => "EXPIRED",
            Status::Closed => "CLOSED",
        }
    }

    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == text)
    }

    /// May it still be answered?
    pub fn is_open(self) -> bool {
        self.after(Step::Answer).is_some()
    }

    /// The whole life of an ask. What is not listed is illegal.
    pub fn after(self, step: Step) -> Option<Status> {
        use Status::{Answered, Claimed, Closed, Expired, Open, Taken};
        Some(match (self, step) {
            (Open, Step::Claim) => Claimed,
            (Claimed, Step::Lose) => Open,
            (Open | Claimed, Step::Answer) => Answered,
            (Answered, Step::See) => Taken,
            (Open | Claimed, Step::Expire) => Expired,
            (Open | Claimed, Step::Close) => Closed,
            (Answered | Taken | Expired, Step::Reopen) => Open,
            _ => return None,
        })
    }
}

/// The configuration of the wait that is asked at this place of a version, as it stands in the definition; none if there is no wait.
pub fn wait(node: &Node, iteration: i32) -> Option<&Value> {
    let items = i32::try_from(for_each::MAX_ITEMS).unwrap_or(i32::MAX);
    match node.kind {
        Kind::WaitForEvent if iteration == 0 => Some(&node.with),
        Kind::ForEach if (1..=items).contains(&iteration) => {
            for_each::inner(&node.with).filter(|(kind, _)| *kind == Kind::WaitForEvent).map(|(_, with)| with)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(kind: &str, with: Value) -> Node {
        let policy = json!({ "max_attempts": 1, "initial_ms": 1, "factor": 1, "max_ms": 1 });
        let node = json!({ "key": "n", "kind": kind, "with": with, "retry": policy });
        serde_json::from_value(node).expect("a node")
    }

    #[test]
    fn a_wait_is_a_node_or_what_a_loop_does_and_nothing_else() {
        let with = json!({ "data": {} });
        let each = |kind: &str| node("FOR_EACH", json!({ "items": [1], "do": { "kind": kind, "with": with } }));
        let alone = node("WAIT_FOR_EVENT", with.clone());
        let found = |node: &Node, iteration| wait(node, iteration) == Some(&with);
        assert!(found(&alone, 0) && !found(&alone, 1));
        let looped = each("WAIT_FOR_EVENT");
        assert_eq!([0, 1, 10_000, 10_001, -1].map(|n| found(&looped, n)), [false, true, true, false, false]);
        assert!(!found(&each("TASK"), 1) && !found(&node("LOG", with.clone()), 0));
    }
}
