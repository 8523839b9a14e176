//! CONDITION: takes the branch true or false.
//!
//! Not here: evaluating the expression (`kernel::kind::condition`).

use kernel::expression::Scope;
use kernel::kind::condition::{Config, decide};
use kernel::run::failure::Failure;

use super::NodeOutput;

pub(super) fn compute(config: &Config, scope: &Scope) -> Result<NodeOutput, Failure> {
    Ok(NodeOutput::branch(decide(&config.expression, scope)?))
}
