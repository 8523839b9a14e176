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
//! Not here: the rows and their fences (`store::wait`), what is asked (`kind`).

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

/// The configuration of the wait that is asked at this place of a version, as it stands in the definition; none if
/// there is no wait.
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

/// Why there is no wait at a place of these nodes, for whoever looked for one.
pub fn no_wait(nodes: &[Node], key: &str, iteration: i32) -> String {
    match nodes.iter().find(|node| node.key.as_str() == key) {
        None => format!("this workflow has no such node: {}", waits_of(nodes)),
        Some(node) if wait(node, 0).is_some() => format!("{key} is no loop: leave iteration out"),
        Some(node) if wait(node, 1).is_some() && iteration == 0 => {
            format!("{key} is a loop: say which item, with iteration from 1 (--iteration)")
        }
        Some(node) if wait(node, 1).is_some() => {
            format!("{key} is a loop with items 1 to {} at most", for_each::MAX_ITEMS)
        }
        Some(node) => format!("{key} is of kind {}, and waits for no answer: {}", node.kind.name(), waits_of(nodes)),
    }
}

fn waits_of(nodes: &[Node]) -> String {
    let alone = |node: &Node| wait(node, 0).map(|_| node.key.to_string());
    let looped = |node: &Node| wait(node, 1).map(|_| format!("{}[n]", node.key));
    let names: Vec<String> = nodes.iter().filter_map(|node| alone(node).or_else(|| looped(node))).collect();
    if names.is_empty() { "it has no waits".to_owned() } else { format!("its waits are {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(key: &str, mut node: Node) -> Node {
        node.key = crate::ids::NodeKey::new(key).expect("a key");
        node
    }

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
    #[test]
    fn whoever_finds_no_wait_is_told_which_there_are() {
        let nodes = [
            named("approve", node("WAIT_FOR_EVENT", json!({}))),
            named("each", node("FOR_EACH", json!({ "items": [1], "do": { "kind": "WAIT_FOR_EVENT" } }))),
            named("say", node("LOG", json!({ "message": "x" }))),
        ];
        let told = |key: &str, iteration| no_wait(&nodes, key, iteration);
        assert_eq!(told("approve", 2), "approve is no loop: leave iteration out");
        assert_eq!(told("each", 0), "each is a loop: say which item, with iteration from 1 (--iteration)");
        assert_eq!(told("each", 10_001), "each is a loop with items 1 to 10000 at most");
        assert_eq!(told("say", 0), "say is of kind LOG, and waits for no answer: its waits are approve, each[n]");
        assert_eq!(told("nobody", 0), "this workflow has no such node: its waits are approve, each[n]");
        assert_eq!(no_wait(&nodes[2..], "nobody", 0), "this workflow has no such node: it has no waits");
    }
}
