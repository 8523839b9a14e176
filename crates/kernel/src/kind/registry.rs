//! The registry of kinds: what every kind says of itself, and one line for each of them.
//!
//! Invariants
//! - A kind's file says everything about it in its `SPEC`; whoever asks, asks here.
//! - The order of the lines is the order in which people are shown the kinds.
//!
//! Not here: the kinds (`kind/<kind>.rs`), doing the work (`engine::nodes`). `docs/adding-a-kind.md` has the steps.

use serde_json::Value;

use crate::definition::Manner;
use crate::definition::fields::Problem;
use crate::expression::Scope;
use crate::expression::template::{self, Survey};
use crate::kind::Kind;
use crate::run::failure::{Failure, Policy, Profiles};

/// What a kind says of itself.
#[derive(Debug)]
pub struct Spec {
    /// The wire name.
    pub name: &'static str,
    /// How engines perform it.
    pub manner: Manner,
    /// What it does, for people.
    pub summary: &'static str,
    /// JSON Schema of `with`.
    pub schema: fn() -> Value,
    /// What is wrong with `with` before its templates are resolved; pointers start there.
    pub check: fn(&Value) -> Vec<Problem>,
    /// The labels that a node may take; none if it does not branch.
    pub labels: fn(&Value) -> Vec<String>,
    /// What `with` looks at, with pointers from there. (What cannot be read is a problem of `check`.)
    pub references: fn(&Value) -> Survey,
    /// The node's input: `with`, with every template resolved.
    pub resolve: fn(&Value, &Scope) -> Result<Value, Failure>,
    /// The fields of `with` that may hold secrets: what they hold leaves through the call, and is stored masked.
    pub secret_fields: &'static [&'static str],
    /// How a node is retried unless its author says otherwise.
    pub retry: fn(&Profiles) -> Policy,
    /// One attempt is all that a node has: a loop's items have their own, and a wait that is over is over.
    pub is_tried_once: bool,
    /// It may be what a FOR_EACH does for each item.
    pub is_action: bool,
}

impl Spec {
    /// A kind that does not branch, whose `with` is all templates, and of which nothing else is special.
    pub(super) const fn new(
        name: &'static str,
        manner: Manner,
        summary: &'static str,
        schema: fn() -> Value,
        check: fn(&Value) -> Vec<Problem>,
    ) -> Spec {
        Spec {
            name,
            manner,
            summary,
            schema,
            check,
            labels: |_| Vec::new(),
            references: template::survey,
            resolve: super::resolve_all,
            secret_fields: &[],
            retry: |profiles| profiles.work,
            is_tried_once: false,
            is_action: true,
        }
    }
}

/// Makes the kinds and their configurations from one line each.
macro_rules! kinds {
    ($($kind:ident => $file:ident,)*) => {
        /// What a node does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum Kind {
            $($kind,)*
        }

        /// A node's configuration, ready to be carried out.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Config {
            $($kind($file::Config),)*
        }

        impl Kind {
            /// Every kind, in the order in which they are listed to people.
            pub const ALL: [Kind; [$(stringify!($kind),)*].len()] = [$(Kind::$kind,)*];

            /// All that is known of the kind.
            pub fn spec(self) -> &'static Spec {
                match self {
                    $(Kind::$kind => &$file::SPEC,)*
                }
            }
        }

        /// Reads a node's input into what its kind works with.
        pub fn prepare(kind: Kind, input: Value) -> Result<Config, Failure> {
            match kind {
                $(Kind::$kind => $file::prepare(input).map(Config::$kind),)*
            }
        }
    };
}

pub(super) use kinds;

impl Kind {
    /// The wire name.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The kind of a wire name.
    pub fn parse(name: &str) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How engines perform this kind.
    pub fn manner(self) -> Manner {
        self.spec().manner
    }

    /// Light kinds only compute.
    pub fn is_light(self) -> bool {
        self.manner() == Manner::Computes
    }

    /// How a node of this kind is retried unless its author, or the operator, says otherwise.
    pub fn retry(self) -> Policy {
        self.retry_by(&Profiles::default())
    }

    /// How a node of this kind is retried unless its author says otherwise.
    pub fn retry_by(self, profiles: &Profiles) -> Policy {
        (self.spec().retry)(profiles)
    }

    /// Does its work take as long as somebody else takes, so that what holds for calls does not hold for it?
    pub fn is_patient(self) -> bool {
        matches!(self.manner(), Manner::Waits | Manner::Asks | Manner::Spawns | Manner::Loops)
    }

    /// Does it make executions or iterations, which are there after a crash?
    pub fn makes_more(self) -> bool {
        matches!(self.manner(), Manner::Spawns | Manner::Loops)
    }
}
