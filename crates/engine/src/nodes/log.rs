//! LOG: returns a message; the log of an execution shows these outputs.

use kernel::kind::log::Config;
use serde_json::json;

use super::NodeOutput;

pub(super) fn compute(config: Config) -> NodeOutput {
    #[cfg(feature = "test-engine")]
    super::panic_on_marker(&config.message);
    NodeOutput::new(json!({ "level": config.level, "message": config.message, "data": config.data }))
}
