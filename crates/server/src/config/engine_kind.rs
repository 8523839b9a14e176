//! The setting `engine.kind`: which engine runs executions.

use serde::{Deserialize, Serialize};

/// The engine that runs executions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EngineKind {
    #[default]
    Embedded,
    /// Temporal and its workers.
    Temporal,
    /// The test engine, with the directory of the files that control it.
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
            "temporal" => {
                Err("this program was built without Temporal: use \"embedded\", or build with the cargo feature \
                     `temporal`"
                    .to_owned())
            }
            _ => Err(format!("{text:?} is not an engine: write \"embedded\" or \"temporal\"")),
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
