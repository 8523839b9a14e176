//! Tests of trigger rules: reading rules, and making inputs from bodies.

use super::*;

fn parsed(value: Value) -> Result<Rule, Vec<String>> {
    let mut problems = Vec::new();
    let rule = read(&value, "/on/http", &mut problems);
    match (rule, problems.is_empty()) {
        (Some(rule), true) => Ok(rule),
        _ => Err(problems.into_iter().map(|problem| problem.pointer).collect()),
    }
}

#[test]
fn nothing_said_is_a_rule_and_everything_said_is_kept() {
    let bare = parsed(json!({})).expect("a rule");
    assert_eq!((bare.idempotency_header(), bare.rate(), bare.body_bytes()), ("idempotency-key", 600, 256 << 10));
    let full = parsed(json!({
        "idempotency_header": "X-GitHub-Delivery", "headers": ["X-GitHub-Event"], "max_body_bytes": 1024, "rate_per_minute": 5,
        "signature": { "header": "X-Hub-Signature-256", "secret": "GITHUB", "prefix": "sha256=" },
        "input": { "ref": "${{ inputs.ref }}" },
    }))
    .expect("a rule");
    assert_eq!(
        (full.idempotency_header(), full.headers.as_slice()),
        ("x-github-delivery", &["x-github-event".to_owned()][..])
    );
    let back: Rule = serde_json::from_value(serde_json::to_value(&full).expect("JSON")).expect("as it was");
    assert_eq!(back, full);
}

#[test]
fn an_impossible_schedule_is_refused_with_the_field() {
    let bad = parsed(json!({
        "idempotency_header": "a b", "headers": ["fine", "Cookie", 7], "max_body_bytes": 0, "rate_per_minute": 1_000_000,
        "signature": { "header": "X-S", "secret": "no name", "encoding": "rot13", "timestamp_header": "X-T", "signed": "{body}" },
        "input": { "a": "${{ inputs. }}" },
    }));
    let pointers = [
        "/on/http/idempotency_header",
        "/on/http/max_body_bytes",
        "/on/http/rate_per_minute",
        "/on/http/headers/1",
        "/on/http/headers/2",
        "/on/http/signature/secret",
        "/on/http/signature/encoding",
        "/on/http/signature/signed",
        "/on/http/input/a",
    ];
    assert_eq!(bad.expect_err("problems"), pointers);
    for (pattern, good) in
        [("v0:{body}", true), ("v0:{body}:{id}", false), ("{body}{", false), ("{ts}.{body}", false), ("}{body}", true)]
    {
        let rule = parsed(json!({ "signature": { "header": "X-S", "secret": "K", "signed": pattern } }));
        assert_eq!(rule.is_ok(), good, "{pattern}");
    }
    assert_eq!(parsed(json!({ "signature": {} })).expect_err("problems"), ["/on/http/signature"; 2]);
    assert_eq!(parsed(json!(true)).expect_err("problems"), ["/on/http"]);
}

#[test]
fn a_body_is_the_input_unless_a_mapping_says_otherwise() {
    let headers = BTreeMap::from([("x-event".to_owned(), "push".to_owned())]);
    let run = |rule: &Rule, body: Value| input_and_trigger(rule, Uuid::nil(), body, &headers);
    let (input, trigger) = run(&Rule::default(), json!({ "a": 1 })).expect("a start");
    assert_eq!(input, json!({ "a": 1 }));
    assert_eq!((&trigger["type"], &trigger["headers"]["x-event"]), (&json!("http"), &json!("push")));
    for body in [json!([1]), json!("text"), Value::Null] {
        assert_eq!(run(&Rule::default(), body.clone()).expect("a start").0, json!({ "body": body }));
    }
    let template = json!({ "what": "${{ trigger.headers['x-event'] }}", "n": "${{ inputs.a }}" });
    let mapped = Rule { input: Some(template), ..Rule::default() };
    assert_eq!(run(&mapped, json!({ "a": 1 })).expect("a start").0, json!({ "what": "push", "n": 1 }));
    assert_eq!(run(&mapped, json!({ "b": 1 })).expect("a start").0, json!({ "what": "push", "n": null }));
}
