//! Which engine runs executions, as it is written in the settings.

use serde::{Deserialize, Serialize};

/// What runs executions, as it is written in the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EngineKind {
    #[default]
    Embedded,
    /// Workers anywhere, and a Temporal between them.
    Temporal,
    /// The directory of an engine that misbehaves on order.
    #[cfg(feature = "test-engine")]
    Test(std::path::PathBuf),
}

impl TryFrom<String> for EngineKind {
    type Error = String;
    fn try_from(text: String) -> Result<EngineKind, String> {
        #[cfg(feature = "test-engine")]
        if let Some(directory) = text.strip_prefix("test:") {
            return Ok(EngineKind::Test(directory.into()));
        }
        match text.as_str() {
            "embedded" => Ok(EngineKind::Embedded),
            "temporal" if cfg!(feature = "temporal") => Ok(EngineKind::Temporal),
            "temporal" => Err("this program was built without Temporal (cargo feature temporal)".to_owned()),
            _ => Err(format!("there is no engine {text:?}: use \"embedded\" or \"temporal\"")),
        }
    }
}

impl From<EngineKind> for String {
    fn from(kind: EngineKind) -> String {
        match kind {
            EngineKind::Embedded => "embedded".to_owned(),
            EngineKind::Temporal => "temporal".to_owned(),
            #[cfg(feature = "test-engine")]
            EngineKind::Test(directory) => format!("test:{}", directory.display()),
        }
    }
}
