//! Workflow documents from files, and the problems found in them.
//!
//! Invariants
//! - A file is read only up to the maximum size of a document.
//!
//! Not here: reading YAML and JSON (`kernel::definition::source`), the rules for workflows
//! (`kernel::definition::parse`), how a problem is drawn (`client::document::draw`).

pub(super) mod draw;

use std::fs::File;
use std::io::{self, Read};

use anyhow::{Context, bail};
use kernel::definition::problem::{Code, Problem};
use kernel::definition::source;
use serde::Serialize;
use serde_json::Value;

/// A text and the name of its file.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// The file as it was given; `-` is stdin.
    pub(crate) file: String,
    pub(crate) text: String,
}

/// A problem of a document, and its position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<Code>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pointer: Option<String>,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suggestion: Option<String>,
}

impl From<Problem> for Finding {
    fn from(problem: Problem) -> Finding {
        Finding {
            code: Some(problem.code),
            line: problem.line,
            column: problem.column,
            pointer: Some(problem.pointer),
            message: problem.message,
            text: problem.text,
            suggestion: problem.suggestion,
        }
    }
}

impl Finding {
    /// A problem without a position in the text.
    pub(crate) fn plain(message: &str) -> Finding {
        Finding { message: message.to_owned(), ..Finding::default() }
    }
}

impl Document {
    /// Reads a file, or stdin for `-`.
    pub(crate) fn load(file: &str) -> anyhow::Result<Document> {
        let mut bytes = Vec::new();
        let most = source::MAX_BYTES as u64;
        let read = match file {
            "-" => io::stdin().lock().take(most + 1).read_to_end(&mut bytes),
            _ => File::open(file).and_then(|open| open.take(most + 1).read_to_end(&mut bytes)),
        };
        let size = read.with_context(|| format!("read {file}"))?;
        if size as u64 > most {
            bail!("{file} is larger than the maximum of {most} bytes");
        }
        let text = String::from_utf8(bytes).ok().with_context(|| format!("{file} is not UTF-8 text"))?;
        Ok(Document { file: file.to_owned(), text })
    }

    /// The value that the text holds, or its first problem.
    pub(crate) fn parse(&self) -> Result<Value, Finding> {
        let read = source::read(&self.text);
        match (read.value, read.problems.into_iter().next()) {
            (Some(value), None) => Ok(value),
            (_, problem) => Err(problem.unwrap_or_default().into()),
        }
    }

    /// The name of the file in messages.
    pub(crate) fn shown(&self) -> &str {
        if self.file == "-" { "stdin" } else { &self.file }
    }

    /// The name of a workflow whose file has no `name:`.
    pub(crate) fn stem(&self) -> Option<String> {
        let stem = std::path::Path::new(&self.file).file_stem()?.to_str()?;
        (self.file != "-").then(|| stem.to_owned())
    }
}
