//! FAIL: fails with the message and the class that its author chose.

use kernel::kind::fail::Config;
use kernel::run::failure::Failure;

use super::NodeOutput;

pub(super) fn compute(config: Config) -> Result<NodeOutput, Failure> {
    Err(config.failure())
}
