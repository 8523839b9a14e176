//! Tests of declarations: their problems, and the inputs that they accept.

use super::*;
use expect_test::{Expect, expect};
use serde_json::json;

fn apply(declared: &Value, additional: bool, inputs: &[Value], expected: Expect) {
    let problems = check(declared);
    assert_eq!(problems, [], "the declarations are good");
    let read = Inputs::read(declared, additional);
    let mut seen = String::new();
    for input in inputs {
        seen.push_str(&format!("{input}\n"));
        match read.apply(Some(input.clone())) {
            Ok(filled) => seen.push_str(&format!("  = {}\n", filled.unwrap_or_default())),
            Err(problems) => {
                let observed = problems.iter().map(|problem| format!("  {} {problem}\n", problem.code.name()));
                seen.extend(observed);
            }
        }
    }
    expected.assert_eq(&seen);
}

fn every_word() -> Value {
    json!({
        "id": {"type": "string", "required": true, "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
        "n": {"type": "number", "minimum": 1, "exclusiveMaximum": 10},
        "i": {"type": ["integer", "null"], "exclusiveMinimum": 0, "maximum": 5},
        "state": {"enum": ["new", 3, null]},
        "fixed": {"const": {"a": 1}},
        "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": "boolean"},
        "open": {"type": "object", "properties": {"a": "string"}, "additionalProperties": "number"},
        "shut": {"type": "object", "required": ["b"], "properties": {"a": "string", "b": {}}, "additionalProperties": false},
    })
}

#[test]
fn what_fits_every_word_is_taken() {
    apply(
        &every_word(),
        true,
        &[
            json!({"id": "abc"}),
            json!({"id": "ab", "n": 1, "i": null, "state": 3, "fixed": {"a": 1}, "list": [true], "open": {"a": "x", "b": 2},
                   "shut": {"b": []}, "other": 1}),
            json!({"id": "ab", "i": 5.0}),
        ],
        expect![[r#"
            {"id":"abc"}
              = {"id":"abc"}
            {"id":"ab","n":1,"i":null,"state":3,"fixed":{"a":1},"list":[true],"open":{"a":"x","b":2},"shut":{"b":[]},"other":1}
              = {"id":"ab","n":1,"i":null,"state":3,"fixed":{"a":1},"list":[true],"open":{"a":"x","b":2},"shut":{"b":[]},"other":1}
            {"id":"ab","i":5.0}
              = {"id":"ab","i":5.0}
        "#]],
    );
}

#[test]
fn every_word_of_a_declaration_counts() {
    apply(
        &every_word(),
        true,
        &[
            json!({}),
            json!({"id": 5, "n": "1", "i": 1.5, "state": "old", "fixed": 1, "list": {}, "open": [], "shut": null}),
            json!({"id": "A", "n": 10, "i": 0, "list": [], "open": {"a": 1, "b": "x"}, "shut": {"aa": 1}}),
            json!({"id": "abcde", "n": 0, "i": 6, "list": [true, 1, 2]}),
            json!([1]),
            json!("text"),
            json!(null),
        ],
        expect![[r#"
            {}
              missing_field id is missing
            {"id":5,"n":"1","i":1.5,"state":"old","fixed":1,"list":{},"open":[],"shut":null}
              wrong_type /id: must be text, not a number
              wrong_type /n: must be a number, not text
              wrong_type /i: must be a whole number or null, not a number
              bad_value /state: must be one of "new", 3, null
              bad_value /fixed: must be one of {"a":1}
              wrong_type /list: must be a list, not an object
              wrong_type /open: must be an object, not a list
              wrong_type /shut: must be an object, not null
            {"id":"A","n":10,"i":0,"list":[],"open":{"a":1,"b":"x"},"shut":{"aa":1}}
              bad_value /id: must have at least 2 characters
              bad_value /id: must match ^[a-z]+$
              bad_value /n: must be less than 10
              bad_value /i: must be more than 0
              bad_value /list: must have at least 1 items
              wrong_type /open/a: must be text, not a number
              wrong_type /open/b: must be a number, not text
              missing_field /shut: b is missing
              unknown_field /shut/aa: unknown input aa, did you mean a?
            {"id":"abcde","n":0,"i":6,"list":[true,1,2]}
              bad_value /id: must have at most 4 characters
              bad_value /n: must be at least 1
              bad_value /i: must be at most 5
              bad_value /list: must have at most 2 items
              wrong_type /list/1: must be a boolean, not a number
              wrong_type /list/2: must be a boolean, not a number
            [1]
              wrong_type must be an object, as the workflow declares its inputs
            "text"
              wrong_type must be an object, as the workflow declares its inputs
            null
              missing_field id is missing
        "#]],
    );
}

#[test]
fn formats_are_checked() {
    let declared = json!({
        "at": {"format": "date-time"}, "day": {"format": "date"}, "uri": {"format": "uri"}, "mail": {"format": "email"},
        "id": {"format": "uuid"},
    });
    apply(
        &declared,
        true,
        &[
            json!({"at": "2030-01-31T09:00:00+02:00", "day": "2030-01-31", "uri": "https://e.test/a?b#c", "mail": "a.b+c@e.test",
                   "id": "019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a"}),
            json!({"at": "2030-01-31", "day": "2030-02-30", "uri": "no scheme", "mail": "a@b@c d", "id": "019a84c2"}),
            json!({"at": 5, "day": null, "uri": "urn:x:y", "mail": "@", "id": ""}),
        ],
        expect![[r#"
            {"at":"2030-01-31T09:00:00+02:00","day":"2030-01-31","uri":"https://e.test/a?b#c","mail":"a.b+c@e.test","id":"019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a"}
              = {"at":"2030-01-31T09:00:00+02:00","day":"2030-01-31","uri":"https://e.test/a?b#c","mail":"a.b+c@e.test","id":"019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a"}
            {"at":"2030-01-31","day":"2030-02-30","uri":"no scheme","mail":"a@b@c d","id":"019a84c2"}
              bad_value /at: must be a date-time
              bad_value /day: must be a date
              bad_value /uri: must be a uri
              bad_value /mail: must be a email
              bad_value /id: must be a uuid
            {"at":5,"day":null,"uri":"urn:x:y","mail":"@","id":""}
              bad_value /mail: must be a email
              bad_value /id: must be a uuid
        "#]],
    );
}

#[test]
fn defaults_stand_for_what_is_missing_and_other_inputs_only_if_they_may() {
    let declared = json!({
        "name": {"type": "string", "default": "you"},
        "order": {"type": "object", "properties": {"count": {"type": "integer", "default": 1}}},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"default": "none"}}}},
        "none": {"type": ["null", "string"]},
    });
    apply(
        &declared,
        false,
        &[
            json!({}),
            json!({"name": "Ada", "order": {}, "lines": [{}, {"sku": "x"}], "none": null}),
            json!({"nmae": "Ada", "zebra": 1}),
            json!({"name": null}),
        ],
        expect![[r#"
            {}
              = {"name":"you"}
            {"name":"Ada","order":{},"lines":[{},{"sku":"x"}],"none":null}
              = {"name":"Ada","order":{"count":1},"lines":[{"sku":"none"},{"sku":"x"}],"none":null}
            {"nmae":"Ada","zebra":1}
              unknown_field /nmae: unknown input nmae, did you mean name?
              unknown_field /zebra: unknown input zebra: use one of name, order, lines, none
            {"name":null}
              wrong_type /name: must be text, not null
        "#]],
    );
    let nothing = Inputs::read(&json!({}), false);
    assert!(nothing.apply(Some(json!({"a": 1}))).is_err());
    assert_eq!(nothing.apply(None), Ok(Some(json!({}))));
}

#[test]
fn without_declarations_anything_is_taken_as_it_is() {
    let inputs = Inputs::read(&Value::Null, true);
    assert!(inputs.takes_anything());
    for input in [None, Some(json!(null)), Some(json!([1])), Some(json!({"a": 1}))] {
        assert_eq!(inputs.apply(input.clone()), Ok(input));
    }
}

#[test]
fn inputs_that_an_older_build_accepted_require_nothing() {
    let inputs = Inputs::read(&json!({"a": 5, "b": {"type": "text", "pattern": "("}, "c": {"type": "string"}}), true);
    assert!(inputs.apply(Some(json!({"a": 1, "b": 2, "c": "x"}))).is_ok());
    assert!(inputs.apply(Some(json!({"c": 1}))).is_err());
}

#[test]
fn problems_are_counted_and_patterns_are_quick() {
    let inputs =
        Inputs::read(&json!({"a": {"type": "array", "items": {"type": "string", "pattern": "^(a+)+$"}}}), true);
    let many: Vec<Value> = (0..10_000).map(Value::from).collect();
    let problems = inputs.apply(Some(json!({"a": many}))).expect_err("numbers");
    assert_eq!(problems.len(), MAX_PROBLEMS);
    assert!(inputs.apply(Some(json!({"a": [format!("{}!", "a".repeat(100_000))]}))).is_err());
}

#[test]
fn work_is_charged_and_an_input_that_takes_too_much_is_refused() {
    let check = |declared: Value, input: Value, refused: bool| {
        let inputs = Inputs::read(&json!({ "a": declared }), true);
        let answer = inputs.apply(Some(json!({ "a": input })));
        assert_eq!(answer.is_err(), refused, "{answer:?}");
        if let Err(problems) = answer {
            assert!(problems.iter().any(|problem| problem.code == Code::TooLarge), "{problems:?}");
        }
    };
    let nearly: Vec<String> = (0..2_000).map(|n| format!("{}b{n}", "a".repeat(240))).collect();
    let items = |schema: Value| json!({ "type": "array", "items": schema });
    check(items(json!({ "pattern": "(?:a?){250}a{250}" })), json!(nearly), true);
    let some: Vec<&str> = nearly.iter().map(String::as_str).collect();
    check(items(json!({ "pattern": "^a+b[0-9]+$" })), json!(some), false);
    let allowed: Vec<usize> = (0..5_000).collect();
    check(items(json!({ "enum": allowed })), json!(vec![4_999; 5_000]), true);
    check(items(json!({ "enum": allowed })), json!(vec![4_999; 500]), false);
}

#[test]
fn patterns_are_bounded_together() {
    let fields = |count: usize| -> Value {
        (0..count)
            .map(|n| (format!("f{n}"), json!({ "type": "string", "pattern": format!("\\w{{{}}}", 20 + n % 5) })))
            .collect()
    };
    assert!(check(&fields(2)).is_empty(), "{:?}", check(&fields(2)));
    assert!(!check(&fields(200)).is_empty());
}

#[test]
fn what_takes_a_moment_is_judged_at_once_and_the_rest_is_left() {
    let inputs = Inputs::read(&json!({ "a": { "type": "string", "pattern": "(?:a?){250}a{250}" } }), true);
    assert!(inputs.apply_cheaply(&Some(json!({ "a": "b" }))).is_some());
    assert!(inputs.apply_cheaply(&Some(json!({ "a": "x".repeat(SMALL_INPUT) }))).is_none(), "it is large");
    assert!(Inputs::default().apply_cheaply(&Some(json!("x".repeat(SMALL_INPUT)))).is_some(), "nothing is judged");
}
