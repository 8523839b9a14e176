//! Documents from files: YAML or JSON in, a JSON value or the place of a slip out.
//!
//! Invariants
//! - Size, depth and aliases are bounded; a key given twice is an error in both forms.
//! - `yes`, `no`, `on` and `off` are text: only `true` and `false` are booleans.
//!
//! Not here: what a good workflow is (`kernel::parse`).

mod strict;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use anyhow::{Context, bail};
use kernel::parse::Problem;
use serde::Serialize;
use serde_json::Value;
use serde_saphyr::{MessageFormatter, UserMessageFormatter};

use crate::output::clean;

/// The largest document that is read.
const MAX_BYTES: u64 = 4 << 20;
/// The most that aliases may add to it.
const MAX_REPLAYED: usize = 100_000;

/// A text and what to call it.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// The file as it was given; `-` is stdin.
    pub(crate) file: String,
    pub(crate) text: String,
}

/// Something wrong with a document, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pointer: Option<String>,
    pub(crate) message: String,
}

impl From<&Problem> for Finding {
    fn from(problem: &Problem) -> Finding {
        let pointer = Some(problem.pointer.clone());
        Finding { line: None, column: None, pointer, message: problem.message.clone() }
    }
}

impl Finding {
    /// Something that has no place in the text.
    pub(crate) fn plain(message: &str) -> Finding {
        Finding { line: None, column: None, pointer: None, message: message.to_owned() }
    }
}

/// `line:column: message` behind a file's name, or the pointer where the position is not known.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "{line}:{}:", self.column.unwrap_or(1))?;
        }
        if let Some(pointer) = self.pointer.as_deref().filter(|pointer| !pointer.is_empty()) {
            write!(f, " {}:", clean(pointer))?;
        }
        write!(f, " {}", clean(&self.message))
    }
}

impl Document {
    /// Reads a file, or stdin for `-`.
    pub(crate) fn load(file: &str) -> anyhow::Result<Document> {
        let mut bytes = Vec::new();
        let read = match file {
            "-" => io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes),
            _ => File::open(file).and_then(|open| open.take(MAX_BYTES + 1).read_to_end(&mut bytes)),
        };
        let size = read.with_context(|| format!("read {file}"))?;
        if size as u64 > MAX_BYTES {
            bail!("{file} is larger than {MAX_BYTES} bytes");
        }
        let text = String::from_utf8(bytes).ok().with_context(|| format!("{file} is not UTF-8 text"))?;
        Ok(Document { file: file.to_owned(), text })
    }

    /// Reads the text as JSON if it is, as YAML otherwise.
    pub(crate) fn parse(&self) -> Result<Value, Finding> {
        let text = self.text.strip_prefix('\u{feff}').unwrap_or(&self.text);
        let is_json = self.file.ends_with(".json");
        if is_json || text.trim_start().starts_with(['{', '[']) {
            match strict::from_json(text) {
                Ok(value) => return Ok(value),
                Err(error) if is_json || strict::is_duplicate(&error) => return Err(json_finding(&error)),
                // A flow mapping of YAML starts like JSON.
                Err(_) => {}
            }
        }
        yaml(text)
    }

    /// What to call the file in messages.
    pub(crate) fn shown(&self) -> &str {
        if self.file == "-" { "stdin" } else { &self.file }
    }

    /// What to call a workflow that has no name of its own.
    pub(crate) fn stem(&self) -> Option<String> {
        let stem = std::path::Path::new(&self.file).file_stem()?.to_str()?;
        (self.file != "-").then(|| stem.to_owned())
    }
}

fn yaml(text: &str) -> Result<Value, Finding> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let at = error.location();
        Finding {
            line: at.map(|at| at.line()),
            column: at.map(|at| at.column()),
            pointer: None,
            message: UserMessageFormatter.format_message(error).into_owned(),
        }
    })
}

fn json_finding(error: &serde_json::Error) -> Finding {
    let text = error.to_string();
    let at = format!(" at line {} column {}", error.line(), error.column());
    let message = text.strip_suffix(&at).unwrap_or(&text).to_owned();
    Finding { line: Some(error.line() as u64), column: Some(error.column() as u64), pointer: None, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(file: &str, texts: &[&str], expected: Expect) {
        let mut seen = String::new();
        for text in texts {
            let document = Document { file: file.to_owned(), text: (*text).to_owned() };
            match document.parse() {
                Ok(value) => seen.push_str(&format!("{value}\n")),
                Err(finding) => seen.push_str(&format!("{}:{finding}\n", document.shown())),
            }
        }
        expected.assert_eq(&seen);
    }

    #[test]
    fn yaml_is_read_as_people_mean_it() {
        check(
            "a.yaml",
            &[
                "a: 1\nb: [x, 1.5, true, null, ~]\n",
                "switch: on\nanswer: no\nyes: y\n",
                "for: 5s\nuntil: 2030-01-31T09:00:00Z\nbig: 18446744073709551615\n",
                "message: Hello, ${{ inputs.name }}!\nif: nodes.a.output.total > 1000\n",
                "a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n",
                "{a: 1, b: two}",
                "\u{feff}a: 1",
                "1: one\ntrue: yes\n",
                "",
                "text: |\n  a\n  b\n",
            ],
            expect![[r#"
                {"a":1,"b":["x",1.5,true,null,null]}
                {"switch":"on","answer":"no","yes":"y"}
                {"for":"5s","until":"2030-01-31T09:00:00Z","big":18446744073709551615}
                {"message":"Hello, ${{ inputs.name }}!","if":"nodes.a.output.total > 1000"}
                {"a":{"b":1},"c":{"b":1},"d":{"e":2,"b":1}}
                {"a":1,"b":"two"}
                {"a":1}
                {"1":"one","true":"yes"}
                null
                {"text":"a\nb\n"}
            "#]],
        );
    }

    #[test]
    fn a_slip_in_yaml_is_told_with_its_place() {
        check(
            "a.yaml",
            &[
                "a: 1\na: 2\n",
                "a: [1, 2\nb: 3\n",
                "a:\n  - b\n c: d\n",
                "a: *nowhere\n",
                "a: !custom 1\n",
                "a: 1\n---\nb: 2\n",
                "a: .nan\n",
                "a: \"\\q\"\n",
                "\ta: 1\n",
                "a: b: c\n",
            ],
            expect![[r#"
                a.yaml:2:1: duplicate mapping key: a not allowed here
                a.yaml:2:2: illegal placement of ':' indicator
                a.yaml:3:2: while parsing a block mapping, did not find expected key
                a.yaml:1:4: reference to unknown value
                a.yaml:1:12: unsupported tag `!custom`
                a.yaml:3:1: only single YAML document expected but multiple found
                a.yaml:1:4: value `.nan` is not a finite number
                a.yaml:1:4: while parsing a quoted scalar, found unknown escape character
                {"a":1}
                a.yaml:1:5: mapping values are not allowed in this context
            "#]],
        );
    }

    #[test]
    fn json_is_read_strictly() {
        check(
            "a.json",
            &[
                r#"{"a": [1, -2, 0.5, 18446744073709551615, "\ud83d\ude00", null, true]}"#,
                "{\n\t\"a\": 1\n}",
                r#"{"a": 1, "a": 2}"#,
                r#"{"a": {"b": [{"c": 1, "c": 2}]}}"#,
                "{\n  \"a\": 1,\n}",
                "{a: 1}",
            ],
            expect![[r#"
                {"a":[1,-2,0.5,18446744073709551615,"😀",null,true]}
                {"a":1}
                a.json:1:12: the key "a" is given twice
                a.json:1:25: the key "c" is given twice
                a.json:3:1: trailing comma
                a.json:1:2: key must be a string
            "#]],
        );
    }

    #[test]
    fn json_from_anywhere_is_known_by_its_look() {
        check(
            "-",
            &["{\n\t\"a\": \"\\/\"\n}", r#"{"a": 1, "a": 2}"#, "{a: 1}", "{a: 1"],
            expect![[r#"
            {"a":"/"}
            stdin:1:12: the key "a" is given twice
            {"a":1}
            stdin:1:1: unclosed bracket '{'
        "#]],
        );
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, of) in ["b", "c", "d", "e", "f", "g", "h"].iter().zip(["a", "b", "c", "d", "e", "f", "g"]) {
            let of = format!("*{of}");
            text.push_str(&format!("{name}: &{name} [{}]\n", [of.as_str(); 10].join(", ")));
        }
        assert!(Document { file: "a.yaml".to_owned(), text }.parse().is_err());
    }
}
