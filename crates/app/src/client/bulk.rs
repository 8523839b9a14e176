//! `run --bulk`: starts one execution for each line of a file.
//!
//! Invariants
//! - Every line is read before the first execution is started.
//! - A request has a bounded number of starts and bytes. Its idempotency key is the given key and the request's
//!   position in the file, so the same file with the same key starts nothing twice.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use anyhow::Context;
use kernel::exact;
use serde::Serialize;
use serde_json::Value;
use server::wire;

use super::Format;
use super::api::Answer;
use super::connection::Session;
use crate::exit::{Exit, usage_error};
use crate::output::{self, Cell};

/// The maximum number of starts, and roughly of bytes, in one request.
const MOST: usize = 1_000;
const MOST_BYTES: usize = 512 << 10;
/// How many invalid lines are reported.
const MAX_REPORTED: usize = 10;

/// A line of the file that is not blank.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    number: usize,
    input: Value,
    bytes: usize,
}

/// The result of one line.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    line: usize,
    #[serde(flatten)]
    answer: &'a wire::BulkStartResult,
}

/// Reads all lines of a file, or of stdin for `-`.
pub(super) fn load(file: &str) -> anyhow::Result<Vec<Line>> {
    let from: Box<dyn BufRead> = match file {
        "-" => Box::new(io::stdin().lock()),
        _ => Box::new(BufReader::new(File::open(file).map_err(|error| unreadable(file, &error))?)),
    };
    let lines = from.lines().collect::<io::Result<Vec<String>>>().map_err(|error| unreadable(file, &error))?;
    read(file, &lines)
}

fn unreadable(file: &str, error: &io::Error) -> anyhow::Error {
    usage_error(format!("read {file}: {error}"))
}

fn read(file: &str, lines: &[String]) -> anyhow::Result<Vec<Line>> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (at, text) in lines.iter().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        match serde_json::from_str(text) {
            Ok(_) if let Some(pointer) = exact::beyond(text.as_bytes()) => {
                bad.push(format!("{file}:{}: {pointer} {}", at + 1, exact::MESSAGE));
            }
            Ok(input) => good.push(Line { number: at + 1, input, bytes: text.len() }),
            Err(error) => bad.push(format!("{file}:{}: {error}", at + 1)),
        }
    }
    match (bad.len(), good.is_empty()) {
        (0, false) => Ok(good),
        (0, true) => Err(usage_error(format!("{file} has no lines: write one JSON value per line"))),
        (many, _) => {
            let rest = if many > MAX_REPORTED { format!("; and {} more", many - MAX_REPORTED) } else { String::new() };
            bad.truncate(MAX_REPORTED);
            Err(usage_error(format!(
                "no execution was started, because some lines are not JSON: {}{rest}",
                bad.join("; ")
            )))
        }
    }
}

/// Starts one execution per line: `body` with the input of the line.
pub(super) async fn start(
    session: &Session,
    lines: &[Line],
    body: &wire::StartExecution,
    key: &str,
) -> anyhow::Result<Exit> {
    let (mut started, mut there, mut refused) = (0, 0, 0);
    for (at, chunk) in chunks(lines).into_iter().enumerate() {
        let item = |line: &Line| {
            serde_json::to_value(wire::StartExecution { input: Some(line.input.clone()), ..body.clone() })
        };
        let items = chunk.iter().map(item).collect::<Result<Vec<Value>, _>>()?;
        let path = "workflow/executions/bulk";
        let answer: Result<Answer<wire::BulkStartedExecutions>, _> =
            session.api.post_once(path, &wire::BulkStartExecutions { items }, &format!("{key}-{at}")).await;
        let from = chunk.first().map_or(0, |line| line.number);
        let go_on = || {
            format!(
                "start from line {from}: {started} executions were started before it; to continue, run the same \
                 command with --idempotency-key {key}"
            )
        };
        let answer = answer.with_context(go_on)?;
        for (line, item) in chunk.iter().zip(&answer.value.items) {
            match &item.started {
                Some(answer) if answer.repeated => there += 1,
                Some(_) => started += 1,
                None => refused += 1,
            }
            print_outcome(session, &Outcome { line: line.number, answer: item })?;
        }
    }
    let there = if there > 0 { format!(", {there} already existed") } else { String::new() };
    session.note(format!("{started} started{there}, {refused} refused"))?;
    Ok(if refused == 0 { Exit::Done } else { Exit::Error })
}

/// Splits the lines into requests, in their order.
fn chunks(lines: &[Line]) -> Vec<&[Line]> {
    let mut chunks = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (at, line) in lines.iter().enumerate() {
        if at > from && (at - from == MOST || bytes + line.bytes > MOST_BYTES) {
            chunks.push(&lines[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += line.bytes;
    }
    chunks.push(&lines[from..]);
    chunks
}

fn print_outcome(session: &Session, outcome: &Outcome<'_>) -> anyhow::Result<()> {
    if session.format == Format::Json {
        return output::print_line(serde_json::to_string(outcome)?);
    }
    let number = outcome.line;
    match (&outcome.answer.started, &outcome.answer.problem) {
        (Some(started), _) => {
            let status = Cell::status(started.status.name());
            output::print_line(format!("line {number}: {} {}", started.execution_id, status.painted(session.stdout)))
        }
        (None, Some(problem)) => output::print_note(format!("line {number}: {}", output::clean(&problem.detail))),
        (None, None) => {
            output::print_note(format!("line {number}: the server refused it with status {}", outcome.answer.status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(texts: &[&str]) -> anyhow::Result<Vec<Line>> {
        read("f", &texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn every_line_is_read_before_anything_is_started() {
        let read = lines(&[r#"{"a": 1}"#, "", "  ", "[2]"]).expect("good lines");
        let seen: Vec<(usize, Value)> = read.into_iter().map(|line| (line.number, line.input)).collect();
        assert_eq!(seen, [(1, json!({"a": 1})), (4, json!([2]))]);
        let bad = lines(&["{}", "{", "nope"]).expect_err("bad lines").to_string();
        assert!(bad.contains("f:2: EOF") && bad.contains("f:3: "), "{bad}");
        assert!(lines(&["", ""]).expect_err("nothing").to_string().contains("has no lines"));
    }

    #[test]
    fn requests_are_bounded_in_number_and_size() {
        let line = |bytes| Line { number: 1, input: Value::Null, bytes };
        let sizes = |lines: &[Line]| chunks(lines).iter().map(|chunk| chunk.len()).collect::<Vec<_>>();
        let many: Vec<Line> = (0..2_001).map(|_| line(4)).collect();
        assert_eq!(sizes(&many), [1_000, 1_000, 1]);
        assert_eq!(sizes(&[line(MOST_BYTES), line(1), line(MOST_BYTES - 1), line(2 * MOST_BYTES)]), [1, 2, 1]);
    }
}
