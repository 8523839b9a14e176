//! Collects the results of the items of a loop.
//!
//! Invariants
//! - For `all` and `exists`, the order of the items does not matter. An error of an item counts only if no other item
//!   decides the result.

use serde_json::Value;

use super::Fault;
use crate::expression::ast::Goal;

/// The result of a loop so far.
pub(super) struct Tally {
    goal: Goal,
    pub(super) list: Vec<Value>,
    matches: usize,
    decided: bool,
    fault: Option<Fault>,
}

impl Tally {
    pub(super) fn new(goal: Goal) -> Self {
        Self { goal, list: Vec::new(), matches: 0, decided: false, fault: None }
    }

    /// Counts the condition of one item. Returns false if the remaining items cannot change the result.
    pub(super) fn count(&mut self, item: Result<bool, Fault>) -> Result<bool, Fault> {
        match (self.goal, item) {
            (_, Err(spent)) if spent.cause.is_spent() => return Err(spent),
            (Goal::ExistsOne, Err(why)) => return Err(why),
            (_, Err(why)) => {
                self.fault.get_or_insert(why);
            }
            (Goal::All, Ok(truth)) => self.decided = !truth,
            (Goal::Exists, Ok(truth)) => self.decided = truth,
            (_, Ok(truth)) => self.matches += usize::from(truth),
        }
        Ok(!self.decided)
    }

    pub(super) fn finish(self) -> Result<Value, Fault> {
        match (self.goal, self.fault) {
            (Goal::Map, _) => Ok(Value::Array(self.list)),
            (Goal::ExistsOne, _) => Ok(Value::Bool(self.matches == 1)),
            (Goal::All | Goal::Exists, Some(fault)) if !self.decided => Err(fault),
            (Goal::All, _) => Ok(Value::Bool(!self.decided)),
            (Goal::Exists, _) => Ok(Value::Bool(self.decided)),
        }
    }
}
