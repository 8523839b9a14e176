//! SWITCH: takes the branch of the first case that matches.
//!
//! Not here: which case matches (`kernel::kind::switch`).

use kernel::expression::Scope;
use kernel::kind::switch::Config;
use kernel::run::failure::Failure;

use super::NodeOutput;

pub(super) fn compute(config: Config, scope: &Scope) -> Result<NodeOutput, Failure> {
    Ok(NodeOutput::branch(config.decide(scope)?))
}
