//! Tests of reading texts: their values, problems and locations.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn check(texts: &[&str], expected: Expect) {
    let mut seen = String::new();
    for text in texts {
        let source = read(text);
        if source.problems.is_empty() {
            seen.push_str(&format!("{}\n", source.value.expect("a value")));
        }
        for problem in source.problems {
            let (line, column) = (problem.line.unwrap_or(0), problem.column.unwrap_or(0));
            let shown = problem.text.as_deref().unwrap_or("");
            seen.push_str(&format!("{line}:{column} {} [{shown}] {problem}\n", problem.code.name()));
        }
    }
    expected.assert_eq(&seen);
}

#[test]
fn yaml_is_read_as_people_mean_it() {
    check(
        &[
            "a: 1\nb: [x, 1.5, true, null, ~]\n",
            "switch: on\nanswer: no\nyes: y\n",
            "for: 5s\nuntil: 2030-01-31T09:00:00Z\nbig: 18446744073709551615\n",
            "message: Hello, ${{ inputs.name }}!\nif: nodes.a.output.total > 1000\n",
            "a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n",
            "a: &x {b: 1}\nc: &y {b: 2, d: 3}\ne: {<<: [*x, *y], f: 4}\n",
            "{a: 1, b: two}",
            "\u{feff}a: 1",
            "1: one\ntrue: yes\n",
            "",
            "text: |\n  a\n  b\n",
            "n: [007, 0, -0, +5, .5, 5., 1e3, 0x1F, 0o17, 0b1, 1_000, 1.2.3, 12:30, +.5e1, 99999999999999999999.0, 0099999999999999999999]\n",
            "t: [!!str 1, !!int 2, True, FALSE, Null, 'null', \"true\"]\n",
            "\ta: 1\n",
            "'<<': 1\n",
        ],
        expect![[r#"
            {"a":1,"b":["x",1.5,true,null,null]}
            {"switch":"on","answer":"no","yes":"y"}
            {"for":"5s","until":"2030-01-31T09:00:00Z","big":18446744073709551615}
            {"message":"Hello, ${{ inputs.name }}!","if":"nodes.a.output.total > 1000"}
            {"a":{"b":1},"c":{"b":1},"d":{"e":2,"b":1}}
            {"a":{"b":1},"c":{"b":2,"d":3},"e":{"f":4,"b":1,"d":3}}
            {"a":1,"b":"two"}
            {"a":1}
            {"1":"one","true":"yes"}
            null
            {"text":"a\nb\n"}
            {"n":["007",0,-0.0,5,0.5,5.0,1000.0,31,15,"0b1","1_000","1.2.3","12:30",5.0,1e+20,"0099999999999999999999"]}
            {"t":["1",2,true,false,null,"null","true"]}
            {"a":1}
            {"<<":1}
        "#]],
    );
}

#[test]
fn an_anchor_on_a_key_stands_for_the_key() {
    check(
        &[
            "&a name: x\nb: *a\n",
            "{&a name: x, b: *a}",
            "&a a: *a\n",
            "&n 1: one\nn: *n\n",
            "&t '1': one\nn: *t\n",
            "&t !!str 1: one\nn: *t\n",
            "? &a name\n: x\nb: [*a, *a]\n",
            "&a a: &b b\nc: [*a, *b]\n",
            "&m <<: {x: 1}\ny: *m\n",
            "!custom a: 1\n",
            "!!int a: 1\n",
            "a: &a {&b b: *b, c: *a}\n",
        ],
        expect![[r#"
            {"name":"x","b":"name"}
            {"name":"x","b":"name"}
            {"a":"a"}
            {"1":"one","n":1}
            {"1":"one","n":"1"}
            {"1":"one","n":"1"}
            {"name":"x","b":["name","name"]}
            {"a":"b","c":["a","b"]}
            {"y":"<<","x":1}
            1:1 syntax [!custom] /a: unsupported tag !custom
            1:7 syntax [a] /a: the value does not have the type of its tag
            1:21 syntax [*a] /a/c: an alias cannot be inside the value that it repeats
        "#]],
    );
}

#[test]
fn an_expression_without_quotes_in_braces_is_explained() {
    check(
        &["a: {b: ${{ c }}}\n", "a: [x ${{ c }}]\n", "a: ${{ c }}\n"],
        expect![[r#"
            1:9 syntax [] while parsing a flow mapping, did not find expected ',' or '}'; put the expression in quotes: "${{ … }}"
            1:8 syntax [] while parsing a flow sequence, expected ',' or ']'; put the expression in quotes: "${{ … }}"
            {"a":"${{ c }}"}
        "#]],
    );
}

#[test]
fn a_mistake_is_reported_with_its_position() {
    check(
        &[
            "a: 1\nb: {c: 1, \"c\": 2}\na: 3\n",
            r#"{"a": {"b": [{"c": 1, "c": 2}]}}"#,
            "a: [1, 2\nb: 3\n",
            "a:\n  - b\n c: d\n",
            "a: *nowhere\n",
            "a: &a [*a]\n",
            "a: !custom 1\n",
            "a: !!int x\n",
            "a: 1\n---\nb: 2\n",
            "a: .nan\n",
            "a: 1e400\n",
            "a: {b: [18446744073709551616]}\n",
            "a: -9223372036854775809\n",
            "a: +99999999999999999999\n",
            "a: 0x1FFFFFFFFFFFFFFFFF\n",
            "{\"a\": 99999999999999999999}",
            "a: \"\\q\"\n",
            "a: b: c\n",
            "{\n  \"a\": 1,\n}",
            "{a: 1",
            "a: x\0y\n",
            "[a, b]: 1\n",
            "a: {<<: 5}\n",
            "a:\n\t- b\n",
            "a: \"\\ud800\"\n",
        ],
        expect![[r#"
            2:11 duplicate_key ["c"] /b/c: the key "c" is given twice
            3:1 duplicate_key [a] /a: the key "a" is given twice
            1:23 duplicate_key ["c"] /a/b/0/c: the key "c" is given twice
            2:2 syntax [] illegal placement of ':' indicator
            3:2 syntax [] while parsing a block mapping, did not find expected key
            1:4 syntax [] while parsing node, found unknown anchor
            1:8 syntax [*a] /a/0: an alias cannot be inside the value that it repeats
            1:4 syntax [!custom] /a: unsupported tag !custom
            1:10 syntax [x] /a: the value does not have the type of its tag
            2:1 syntax [---] a text may contain only one YAML document
            1:4 bad_value [.nan] /a: .nan is not a finite number
            1:4 bad_value [1e400] /a: 1e400 is not a finite number
            1:9 bad_value [18446744073709551616] /a/b/0: 18446744073709551616 is an integer that does not fit into 64 bits: put quotes around it
            1:4 bad_value [-9223372036854775809] /a: -9223372036854775809 is an integer that does not fit into 64 bits: put quotes around it
            1:4 bad_value [+99999999999999999999] /a: +99999999999999999999 is an integer that does not fit into 64 bits: put quotes around it
            1:4 bad_value [0x1FFFFFFFFFFFFFFFFF] /a: 0x1FFFFFFFFFFFFFFFFF is an integer that does not fit into 64 bits: put quotes around it
            1:7 bad_value [99999999999999999999] /a: 99999999999999999999 is an integer that does not fit into 64 bits: put quotes around it
            1:4 syntax [] while parsing a quoted scalar, found unknown escape character
            1:5 syntax [] a colon followed by a space makes a key: put quotes around the text
            {"a":1}
            1:1 syntax [] unclosed bracket '{'
            1:5 nul [] the text holds a NUL character, which cannot be stored
            1:1 syntax [[] a key must be text, not a list or an object
            1:5 syntax [<<] /a: << takes an object, or a list of objects
            2:2 syntax [] tabs disallowed within this context (block indentation)
            1:4 syntax [] while parsing a quoted scalar, found high surrogate without following low surrogate
        "#]],
    );
}

#[test]
fn what_would_grow_is_refused_before_it_does() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, of) in ["b", "c", "d", "e", "f", "g", "h"].iter().zip(["a", "b", "c", "d", "e", "f", "g"]) {
        let of = format!("*{of}");
        bomb.push_str(&format!("{name}: &{name} [{}]\n", [of.as_str(); 10].join(", ")));
    }
    let wide = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), ["*a"; 20].join(", "));
    let nested = (0..60).fold("x".repeat(1 << 18), |inner, at| format!("&n{at} [{inner}]"));
    let deep = "[".repeat(10_000);
    let blocks: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    let through = format!("a: &a {}1{}\nb: [*a]\n", "[".repeat(63), "]".repeat(63));
    let many = format!("[{}]", "1,".repeat(MAX_VALUES));
    let large = " ".repeat(MAX_BYTES + 1);
    let keys = format!("&a {}: 1\nb: [{}]\n", "x".repeat(1_000), "*a,".repeat(10_000));
    let all = [bomb, wide, nested, deep, blocks, through, many, large, keys];
    let mut seen = String::new();
    for text in &all {
        let source = read(text);
        assert!(source.value.is_none());
        for problem in source.problems {
            let place = format!("{}:{}", problem.line.unwrap_or(0), problem.column.unwrap_or(0));
            seen.push_str(&format!("{place} {} {}\n", problem.code.name(), problem.message));
        }
    }
    expect![[r#"
        5:7 too_large there are more than 200000 values, counting the copies that aliases make
        2:25 too_large there are more than 8388608 bytes, counting the copies that aliases make
        1:174 too_large there are more than 8388608 bytes, counting the copies that aliases make
        1:256 too_deep nests deeper than 64
        65:65 too_deep nests deeper than 64
        2:5 too_deep nests deeper than 64
        1:400000 too_large there are more than 200000 values, counting the copies that aliases make
        0:0 too_large the text is larger than 4194304 bytes
        2:25163 too_large there are more than 8388608 bytes, counting the copies that aliases make
    "#]]
    .assert_eq(&seen);
}

#[test]
fn lines_are_counted_as_problems_count_them() {
    let text = "\u{feff}a\r\nb\rc\n\nd";
    let lines: Vec<Option<&str>> = (1..7).map(|number| line(text, number)).collect();
    assert_eq!(lines, [Some("a"), Some("b"), Some("c"), Some(""), Some("d"), None]);
}

fn any_json() -> impl Strategy<Value = Value> + Clone {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        // YAML allows DEL and similar control characters only as escapes.
        "[\\x01-\\x7e\u{85}\u{2028}\u{feff}é😀]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("\\PC{0,5}", inner), 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// Checks that every value is at the location of its spot, so that problems are reported at the right place.
fn spots_fit(value: &Value, spot: &Spot) -> bool {
    match value {
        Value::Array(items) => {
            items.len() == spot.children.len()
                && items.iter().zip(&spot.children).all(|(value, spot)| spots_fit(value, spot))
        }
        Value::Object(fields) => {
            fields.len() == spot.children.len()
                && fields.values().zip(&spot.children).all(|(value, spot)| spot.key.is_some() && spots_fit(value, spot))
        }
        _ => spot.children.is_empty(),
    }
}

proptest! {
    #[test]
    fn json_is_read_as_the_value_it_is(value in any_json()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).expect("JSON")] {
            let source = read(&text);
            prop_assert_eq!(&source.problems, &Vec::new(), "{}", text);
            prop_assert!(spots_fit(&value, source.spots.as_ref().expect("places")));
            prop_assert_eq!(source.value, Some(value.clone()), "{}", text);
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "([-a-z&*!|>%@`\"'{}\\[\\]:,?#~<\\\\ \n\t\r]|é|\u{feff}|1e4|<<: ){0,40}") {
        let source = read(&text);
        if let Some(value) = &source.value {
            prop_assert!(spots_fit(value, source.spots.as_ref().expect("places")));
        }
        prop_assert!(source.problems.iter().all(|problem| problem.line.is_some()));
    }
}
