//! The registry of kinds: one line for each kind. A kind's file has `SPEC`, `Config`, `FIELDS`,
//! `schema` and `read`.
//!
//! Invariants
//! - The `SPEC` in a kind's file says everything about the kind; other code reads it through this registry.
//! - The kinds are shown to people in the order of the lines.
//!
//! Not here: the kinds (`kind/<kind>.rs`), doing the work (`engine::nodes`). `docs/how-to/add-a-node-kind.md` has the
//! steps.

use serde_json::Value;

use crate::definition::Manner;
use crate::expression::Scope;
use crate::expression::template::{self, Survey};
use crate::kind::Kind;
use crate::run::failure::{Failure, Policy, Profiles};

/// The description of a kind.
#[derive(Debug)]
pub struct Spec {
    /// The wire name.
    pub name: &'static str,
    /// How engines perform it.
    pub manner: Manner,
    /// What it does, for people.
    pub summary: &'static str,
    /// The labels that a node may take; none if it does not branch.
    pub labels: fn(&Value) -> Vec<String>,
    /// The paths that `with` uses, with pointers from there. (`check` reports what cannot be parsed.)
    pub references: fn(&Value) -> Survey,
    /// The node's input: `with`, with every template resolved.
    pub resolve: fn(&Value, &Scope) -> Result<Value, Failure>,
    /// The fields of `with` that may hold secrets. Their values are sent with the call and stored masked.
    pub secret_fields: &'static [&'static str],
    /// How a node is retried unless its author says otherwise.
    pub retry: fn(&Profiles) -> Policy,
    /// The node itself has only one attempt: the items of a loop have their own, and an ended wait stays ended.
    pub is_tried_once: bool,
    /// It may be the action of a FOR_EACH.
    pub is_action: bool,
    /// Its author may ask for it to be performed at most once. Other kinds take effect once by themselves.
    pub may_be_at_most_once: bool,
}

impl Spec {
    /// A kind that does not branch, whose `with` is all templates, with the default of every other property.
    pub(super) const fn new(name: &'static str, manner: Manner, summary: &'static str) -> Spec {
        Spec {
            name,
            manner,
            summary,
            labels: |_| Vec::new(),
            references: template::survey,
            resolve: super::resolve_all,
            secret_fields: &[],
            retry: |profiles| profiles.work,
            is_tried_once: false,
            is_action: true,
            may_be_at_most_once: false,
        }
    }
}

/// Defines the kinds and their configurations from one line each.
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

            /// The description of the kind.
            pub fn spec(self) -> &'static Spec {
                match self {
                    $(Kind::$kind => &$file::SPEC,)*
                }
            }
        }

        /// JSON Schema of the `with` of a kind.
        pub fn schema(kind: Kind) -> Value {
            match kind {
                $(Kind::$kind => $file::schema(),)*
            }
        }

        /// What is wrong with `with` before its templates are resolved; pointers start there.
        pub fn check(kind: Kind, with: &Value) -> Vec<Problem> {
            match kind {
                $(Kind::$kind => check_with(with, $file::FIELDS, $file::read),)*
            }
        }

        /// Parses a node's input into the configuration of its kind.
        pub fn prepare(kind: Kind, input: &Value) -> Result<Config, Failure> {
            match kind {
                $(Kind::$kind => prepare_with(input, $file::FIELDS, $file::read).map(Config::$kind),)*
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

    /// Does its work wait for a person, a worker or another execution, so that the limits of calls do not apply?
    pub fn is_patient(self) -> bool {
        matches!(self.manner(), Manner::Waits | Manner::WaitsForAnswer | Manner::Spawns | Manner::Loops)
    }

    /// Does it start executions or iterations, which still exist after a crash?
    pub fn makes_more(self) -> bool {
        matches!(self.manner(), Manner::Spawns | Manner::Loops)
    }
}
