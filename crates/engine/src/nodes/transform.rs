//! TRANSFORM: returns the value that its templates resolved to.

use kernel::kind::transform::Config;

use super::NodeOutput;

pub(super) fn compute(config: Config) -> NodeOutput {
    NodeOutput::new(config.value)
}
