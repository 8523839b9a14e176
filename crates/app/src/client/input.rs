//! What an execution starts with, from the command line.
//!
//! Invariants
//! - A value is JSON where it reads as JSON and text otherwise; a number that would not keep its
//!   digits (`007`, `1.10`, twenty digits) stays text.
//! - Nothing given is silently replaced by something of another shape.
//!
//! Not here: what a workflow expects (the server says).

use anyhow::{Context, bail};
use jiff::Timestamp;
use kernel::{duration, exact};
use serde_json::{Map, Value};

use super::document::{Document, draw};
use crate::exit::{as_usage, usage};

/// One `-i key=value`: where it goes and what it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    path: Vec<String>,
    value: Value,
}

/// The whole input: `--input` as the ground, each `-i` on top of it.
pub(crate) fn assemble(input: Option<&str>, settings: &[Setting]) -> anyhow::Result<Option<Value>> {
    overlay(input.map(read).transpose()?, settings)
}

/// A whole input with each `-i` put on top of it.
pub(crate) fn overlay(mut whole: Option<Value>, settings: &[Setting]) -> anyhow::Result<Option<Value>> {
    for setting in settings {
        let ground = whole.get_or_insert_with(|| Value::Object(Map::new()));
        set(ground, setting)?;
    }
    Ok(whole)
}

/// Reads `key=value`; dots lead into objects.
pub(crate) fn read_setting(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("write key=value")?;
    let path: Vec<String> = key.split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) {
        return Err("write key=value or outer.inner=value".to_owned());
    }
    Ok(Setting { path, value: read_value(value) })
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
    let expected = || "write a time such as 2030-01-31T09:00:00Z, or how long ago it was, such as 24h".to_owned();
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

/// The same, given as another flag.
pub(crate) fn read_of(flag: &str, input: &str) -> anyhow::Result<Value> {
    read_any(flag, input).map_err(|error| as_usage(&error))
}

fn read_any(flag: &str, input: &str) -> anyhow::Result<Value> {
    let file = if input == "-" { Some("-") } else { input.strip_prefix('@') };
    let Some(file) = file else {
        let told = || format!("read {flag} as JSON (@FILE reads a file, - reads stdin)");
        let value = serde_json::from_str(input).with_context(told)?;
        return match exact::beyond(input.as_bytes()) {
            Some(pointer) => Err(anyhow::anyhow!("{flag}: {pointer} {}", exact::MESSAGE)),
            None => Ok(value),
        };
    };
    let document = Document::load(file)?;
    document.parse().map_err(|finding| anyhow::anyhow!(draw::plain(document.shown(), &finding)))
}

fn set(ground: &mut Value, setting: &Setting) -> anyhow::Result<()> {
    let mut at = ground;
    for (depth, name) in setting.path.iter().enumerate() {
        let Value::Object(fields) = at else {
            let outer = setting.path[..depth].join(".");
            let outer = if outer.is_empty() { "the input" } else { &outer };
            bail!(usage(format!("cannot set {}: {outer} is not an object", setting.path.join("."))));
        };
        let is_last = depth + 1 == setting.path.len();
        if is_last {
            fields.insert(name.clone(), setting.value.clone());
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

    fn check(input: Option<&str>, settings: &[&str], expected: Expect) {
        let settings: Result<Vec<Setting>, String> = settings.iter().map(|text| read_setting(text)).collect();
        let seen = match settings.map(|settings| assemble(input, &settings)) {
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
    fn an_input_file_may_be_yaml() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("input.yaml");
        std::fs::write(&file, "order: {id: A1, total: 12}\n")?;
        let input = format!("@{}", file.display());
        let settings = [read_setting("order.total=13").map_err(anyhow::Error::msg)?];
        assert_eq!(assemble(Some(&input), &settings)?, Some(json!({"order": {"id": "A1", "total": 13}})));
        Ok(())
    }
}
