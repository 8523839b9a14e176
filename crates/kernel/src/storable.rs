//! Which values the database can store and give back.
//!
//! Invariants
//! - A value that passes is not refused by the database: its size is bounded where it is made.
//! - A value that passes can be read again, also inside other values: readers of JSON stop at 128 levels.
//!
//! Not here: what is stored (`store`), the size of values (`kind`, `expression`).

use serde_json::Value;

use crate::run::failure::{Class, Failure};

/// How deep the output of a node may nest. Templates resolve to less; a response or an answer may be this deep.
pub const MAX_NESTING: usize = 120;

/// Why the database cannot store a value, or not give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstorable {
    Nul,
    TooDeep,
}

/// Checks a value in which at most `levels` arrays and objects may be nested in one another.
pub fn check(value: &Value, levels: usize) -> Result<(), Unstorable> {
    let inner = || levels.checked_sub(1).ok_or(Unstorable::TooDeep);
    match value {
        Value::String(text) => check_text(text),
        Value::Array(items) => {
            let inner = inner()?;
            items.iter().try_for_each(|item| check(item, inner))
        }
        Value::Object(fields) => {
            let inner = inner()?;
            fields.iter().try_for_each(|(key, value)| check_text(key).and_then(|()| check(value, inner)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Does a text or a key in the value contain a NUL character?
pub fn has_nul(value: &Value) -> bool {
    check(value, usize::MAX) == Err(Unstorable::Nul)
}

fn check_text(text: &str) -> Result<(), Unstorable> {
    if text.contains('\0') { Err(Unstorable::Nul) } else { Ok(()) }
}

/// Checks the output of a node.
pub fn check_output(output: &Value) -> Result<(), Failure> {
    check(output, MAX_NESTING).map_err(|why| {
        let (class, limit) = (Class::UnstorableOutput, MAX_NESTING);
        let why = match why {
            Unstorable::Nul => "contains a NUL character, which the database cannot store; remove it".to_owned(),
            Unstorable::TooDeep => format!("nests deeper than {limit} levels, so it cannot be read again; flatten it"),
        };
        Failure::new(class, format!("the output {why}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({ "a": inner }) })
    }

    #[test]
    fn an_output_has_no_nul_and_few_levels() {
        let class = |output: &Value| check_output(output).map_err(|failure| failure.class);
        assert_eq!(class(&json!({ "a": ["b", 1.5, null, true] })), Ok(()));
        for nul in [json!("a\0b"), json!([["\0"]]), json!({ "a": { "\0": 1 } })] {
            assert_eq!(class(&nul), Err(Class::UnstorableOutput), "{nul}");
            assert!(has_nul(&json!([nested(MAX_NESTING), nul])), "at any level");
        }
        assert_eq!(class(&nested(MAX_NESTING)), Ok(()));
        assert_eq!(class(&nested(MAX_NESTING + 1)), Err(Class::UnstorableOutput));
        let read = serde_json::from_str::<Value>(&nested(MAX_NESTING + 5).to_string());
        assert!(read.is_ok(), "it can be read inside other values");
    }
}
