//! Reads the input of an execution, times and durations from the command line.
//!
//! Invariants
//! - A value is JSON if it can be parsed as JSON, else text. A number that JSON would write differently (`007`, `1.10`,
//!   twenty digits) stays text.
//! - A nested field (`outer.inner=value`) is an error if `outer` already has a value that is not an object.
//!
//! Not here: which input a workflow accepts (the server checks it).

use anyhow::{Context, bail};
use jiff::Timestamp;
use kernel::definition::problem::{Code, Problem};
use kernel::{duration, exact};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::document::{Document, draw};
use crate::exit::{as_usage_error, usage_error};

/// One `-i key=value`: the path of the field, and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InputField {
    path: Vec<String>,
    value: Value,
}

/// The whole input: that of `--input`, in which each `-i` sets a field.
pub(crate) fn assemble(input: Option<&str>, fields: &[InputField]) -> anyhow::Result<Option<Value>> {
    overlay(input.map(read).transpose()?, fields)
}

/// Sets the fields in an input.
pub(crate) fn overlay(mut whole: Option<Value>, fields: &[InputField]) -> anyhow::Result<Option<Value>> {
    for field in fields {
        let ground = whole.get_or_insert_with(|| Value::Object(Map::new()));
        set_field(ground, field)?;
    }
    Ok(whole)
}

/// How to write a field whose value was read as JSON although the input must be text.
pub(crate) fn how_to_write(fields: &[InputField], problem: &Problem) -> Option<String> {
    let path: Vec<&str> = problem.pointer.strip_prefix("/input/")?.split('/').collect();
    let field = fields.iter().rfind(|field| field.path == path)?;
    let is_of_text = problem.code == Code::WrongType && problem.message.starts_with("must be text");
    let is_simple = !field.value.is_array() && !field.value.is_object();
    (is_of_text && is_simple).then(|| format!("; write -i {}='\"{}\"'", path.join("."), field.value))
}

/// Reads `key=value`; a dot separates the names of nested fields.
pub(crate) fn read_field(text: &str) -> Result<InputField, String> {
    let (key, value) = text.split_once('=').ok_or("write key=value")?;
    let path: Vec<String> = key.split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) {
        return Err("write key=value or outer.inner=value".to_owned());
    }
    Ok(InputField { path, value: read_value(value) })
}

/// Reads a duration of whole seconds, such as `90s` or `2d`.
pub(crate) fn read_id(text: &str) -> Result<Uuid, String> {
    let refuse = |_| "write an id, as the list of this command (ls) shows it; names are not accepted here".to_owned();
    text.parse().map_err(refuse)
}

pub(crate) fn read_seconds(text: &str) -> Result<u32, String> {
    let length = duration::parse(text).map_err(|bad| bad.to_string())?;
    match u32::try_from(length.as_secs()) {
        Ok(seconds) if length.subsec_nanos() == 0 => Ok(seconds),
        Ok(_) => Err("must be whole seconds, such as 90s".to_owned()),
        Err(_) => Err("is too long: write a shorter duration".to_owned()),
    }
}

/// Reads a time: RFC 3339, or a duration from now.
pub(crate) fn read_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let expected = || "write a time such as 2030-01-31T09:00:00Z, or how long from now, such as 10m".to_owned();
    let wait = duration::parse(text).map_err(|_| expected())?;
    Timestamp::now().checked_add(wait).map_err(|_| expected())
}

/// Reads a time: RFC 3339, or how long ago it was.
pub(crate) fn read_past(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let expected = || "write a time such as 2030-01-31T09:00:00Z, or how long ago, such as 24h".to_owned();
    let ago = duration::parse(text).map_err(|_| expected())?;
    Timestamp::now().checked_sub(ago).map_err(|_| expected())
}

fn read_value(text: &str) -> Value {
    let as_text = || Value::String(text.to_owned());
    match serde_json::from_str(text) {
        Ok(Value::Number(number)) if number.to_string() != text.trim() => as_text(),
        Ok(value) => value,
        Err(_) => as_text(),
    }
}

/// Reads an input: JSON, `@FILE`, or `-` for stdin.
pub(crate) fn read(input: &str) -> anyhow::Result<Value> {
    read_of("--input", input)
}

/// Reads the value of a flag: JSON, `@FILE`, or `-` for stdin. `flag` is the flag that an error names.
pub(crate) fn read_of(flag: &str, input: &str) -> anyhow::Result<Value> {
    read_any(flag, input).map_err(|error| as_usage_error(&error))
}

fn read_any(flag: &str, input: &str) -> anyhow::Result<Value> {
    let file = if input == "-" { Some("-") } else { input.strip_prefix('@') };
    let Some(file) = file else {
        let context = || format!("read {flag} as JSON (@FILE reads a file, - reads stdin)");
        let value = serde_json::from_str(input).with_context(context)?;
        return match exact::beyond(input.as_bytes()) {
            Some(pointer) => Err(anyhow::anyhow!("{flag}: {pointer} {}", exact::MESSAGE)),
            None => Ok(value),
        };
    };
    let document = Document::load(file)?;
    document.parse().map_err(|finding| anyhow::anyhow!(draw::plain(document.shown(), &finding)))
}

fn set_field(ground: &mut Value, field: &InputField) -> anyhow::Result<()> {
    let mut at = ground;
    for (depth, name) in field.path.iter().enumerate() {
        let Value::Object(fields) = at else {
            let outer = field.path[..depth].join(".");
            let outer = if outer.is_empty() { "the input" } else { &outer };
            bail!(usage_error(format!("cannot set {}: {outer} is not an object", field.path.join("."))));
        };
        let is_last = depth + 1 == field.path.len();
        if is_last {
            fields.insert(name.clone(), field.value.clone());
            return Ok(());
        }
        at = fields.entry(name.as_str()).or_insert_with(|| Value::Object(Map::new()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::json;

    fn check(input: Option<&str>, fields: &[&str], expected: Expect) {
        let fields: Result<Vec<InputField>, String> = fields.iter().map(|text| read_field(text)).collect();
        let seen = match fields.map(|fields| assemble(input, &fields)) {
            Ok(Ok(Some(value))) => value.to_string(),
            Ok(Ok(None)) => "nothing".to_owned(),
            Ok(Err(error)) => format!("error: {error:#}"),
            Err(refusal) => format!("usage: {refusal}"),
        };
        expected.assert_eq(&seen);
    }

    #[test]
    fn settings_make_objects() {
        check(None, &[], expect!["nothing"]);
        check(None, &["name=World"], expect![[r#"{"name":"World"}"#]]);
        check(
            None,
            &["a.b=1", "a.c=x y", "d=[1,2]", "e={\"f\":null}"],
            expect![[r#"{"a":{"b":1,"c":"x y"},"d":[1,2],"e":{"f":null}}"#]],
        );
        check(None, &["a=1", "a=2"], expect![[r#"{"a":2}"#]]);
        check(
            None,
            &["empty=", "equals=a=b", "quoted=\"1\"", "yes=true", "no=null"],
            expect![[r#"{"empty":"","equals":"a=b","quoted":"1","yes":true,"no":null}"#]],
        );
        check(Some(r#"{"a": {"b": 1}, "z": 0}"#), &["a.c=2", "z=9"], expect![[r#"{"a":{"b":1,"c":2},"z":9}"#]]);
        check(Some("[1, 2]"), &[], expect!["[1,2]"]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        check(None, &["name"], expect!["usage: write key=value"]);
        check(None, &["=1"], expect!["usage: write key=value or outer.inner=value"]);
        check(None, &["a..b=1"], expect!["usage: write key=value or outer.inner=value"]);
        check(None, &["a=1", "a.b=2"], expect!["error: cannot set a.b: a is not an object"]);
        check(Some("[]"), &["a=1"], expect!["error: cannot set a: the input is not an object"]);
        check(
            Some("{"),
            &[],
            expect![
                "error: read --input as JSON (@FILE reads a file, - reads stdin): EOF while parsing an object at line 1 column 1"
            ],
        );
        check(
            Some("@/nowhere/at/all.json"),
            &[],
            expect!["error: read /nowhere/at/all.json: No such file or directory (os error 2)"],
        );
    }

    #[test]
    fn a_text_of_digits_is_shown_with_its_quotes() {
        let fields = ["a=7", "b.c=true", "d=x", "e=[1]"].map(|text| read_field(text).expect("a field"));
        let shown = |pointer: &str, message: &str| {
            how_to_write(&fields, &Problem::new(Code::WrongType, pointer, message)).unwrap_or_default()
        };
        assert_eq!(shown("/input/a", "must be text, not a number"), "; write -i a='\"7\"'");
        assert_eq!(shown("/input/b/c", "must be text or null, not a boolean"), "; write -i b.c='\"true\"'");
        for (pointer, message) in [
            ("/input/a", "must be a list, not a number"),
            ("/input/b", "must be text, not an object"),
            ("/input/e", "must be text, not a list"),
            ("/input/f", "must be text, not null"),
            ("/a", "must be text, not a number"),
        ] {
            assert_eq!(shown(pointer, message), "", "{pointer}");
        }
    }

    #[test]
    fn a_number_that_would_lose_its_digits_stays_text() {
        let table = [
            ("1", json!(1)),
            ("-7", json!(-7)),
            ("1.5", json!(1.5)),
            ("007", json!("007")),
            ("1.10", json!("1.10")),
            ("1e5", json!("1e5")),
            ("18446744073709551615", json!(u64::MAX)),
            ("123456789012345678901234567890", json!("123456789012345678901234567890")),
            ("-0", json!("-0")),
        ];
        for (text, value) in table {
            assert_eq!(read_value(text), value, "{text}");
        }
    }

    #[test]
    fn a_time_is_given_or_counted_from_now() {
        assert_eq!(read_time("2030-01-31T09:00:00Z").map(|at| at.to_string()), Ok("2030-01-31T09:00:00Z".to_owned()));
        assert!(read_time("10m").is_ok_and(|at| at > Timestamp::now()));
        for text in ["", "tomorrow", "2030-01-31", "09:00", "10"] {
            assert!(read_time(text).is_err(), "{text}");
            assert!(read_past(text).is_err(), "{text}");
        }
        assert!(read_past("10m").is_ok_and(|at| at < Timestamp::now()));
    }

    #[test]
    fn a_duration_in_seconds_has_a_unit_and_no_fraction() {
        let table = [("90s", Some(90)), ("2d", Some(172_800)), ("0s", Some(0)), ("1h30m", Some(5_400))];
        for (text, seconds) in table.into_iter().chain([("60", None), ("1500ms", None), ("", None), ("99999d", None)]) {
            assert_eq!(read_seconds(text).ok(), seconds, "{text}");
        }
    }

    #[test]
    fn an_input_file_may_be_yaml() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("input.yaml");
        std::fs::write(&file, "order: {id: A1, total: 12}\n")?;
        let input = format!("@{}", file.display());
        let fields = [read_field("order.total=13").map_err(anyhow::Error::msg)?];
        assert_eq!(assemble(Some(&input), &fields)?, Some(json!({"order": {"id": "A1", "total": 13}})));
        Ok(())
    }
}
