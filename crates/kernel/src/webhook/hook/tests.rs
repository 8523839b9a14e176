//! Rules read, requests believed or not, bodies made inputs.

use super::*;

fn parsed(value: Value) -> Result<Rule, Vec<String>> {
    let mut problems = Vec::new();
    let rule = read(&value, "/on/webhook", &mut problems);
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
fn what_cannot_be_is_told_with_its_place() {
    let bad = parsed(json!({
        "idempotency_header": "a b", "headers": ["fine", "Cookie", 7], "max_body_bytes": 0, "rate_per_minute": 1_000_000,
        "signature": { "header": "X-S", "secret": "no name", "encoding": "rot13", "timestamp_header": "X-T", "signed": "{body}" },
        "input": { "a": "${{ inputs. }}" },
    }));
    let pointers = [
        "/on/webhook/idempotency_header",
        "/on/webhook/max_body_bytes",
        "/on/webhook/rate_per_minute",
        "/on/webhook/headers/1",
        "/on/webhook/headers/2",
        "/on/webhook/signature/secret",
        "/on/webhook/signature/encoding",
        "/on/webhook/signature/signed",
        "/on/webhook/input/a",
    ];
    assert_eq!(bad.expect_err("problems"), pointers);
    for (pattern, good) in
        [("v0:{body}", true), ("v0:{body}:{id}", false), ("{body}{", false), ("{ts}.{body}", false), ("}{body}", true)]
    {
        let rule = parsed(json!({ "signature": { "header": "X-S", "secret": "K", "signed": pattern } }));
        assert_eq!(rule.is_ok(), good, "{pattern}");
    }
    assert_eq!(parsed(json!({ "signature": {} })).expect_err("problems"), ["/on/webhook/signature"; 2]);
    assert_eq!(parsed(json!(true)).expect_err("problems"), ["/on/webhook"]);
}

/// `printf '{}' | openssl dgst -sha256 -hmac hunter2`
const OF_BODY: &str = "603176255680307a81ec5b984e3a7b4143d0aef1fd1576987618e55c50868ad7";

fn signed(timestamp_header: Option<&str>, pattern: Option<&str>) -> Signature {
    Signature {
        header: "x-s".to_owned(),
        secret: "S".to_owned(),
        encoding: Encoding::Hex,
        prefix: "sha256=".to_owned(),
        timestamp_header: timestamp_header.map(str::to_owned),
        signed: pattern.map(str::to_owned),
    }
}

fn hex(signature: &Signature, timestamp: &str) -> String {
    let bytes = expected(signature, b"hunter2", timestamp, b"{}").finalize().into_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_signature_over_the_body_opens_and_no_other() {
    let plain = signed(None, None);
    let good = format!("sha256={}", hex(&plain, ""));
    let check = |given: Option<&str>, body: &[u8]| verify(&plain, b"hunter2", given, None, body, 0);
    assert_eq!(hex(&plain, ""), OF_BODY);
    assert_eq!(check(Some(&good), b"{}"), Ok(()));
    assert_eq!(check(Some(&good.to_uppercase().replace("SHA256", "sha256")), b"{}"), Ok(()), "hex is hex");
    assert_eq!(check(None, b"{}"), Err(Unsigned::Missing));
    for wrong in [&good[7..], "sha256=", "sha256=zz", "sha256=é", &good[..good.len() - 2], &format!("{good}00")] {
        assert_eq!(check(Some(wrong), b"{}"), Err(Unsigned::Wrong), "{wrong}");
    }
    assert_eq!(check(Some(&good), b"{ }"), Err(Unsigned::Wrong), "another body");
    assert_eq!(verify(&plain, b"hunter3", Some(&good), None, b"{}", 0), Err(Unsigned::Wrong), "another secret");
    let encoded = Signature { encoding: Encoding::Base64, prefix: String::new(), ..plain.clone() };
    let bytes = expected(&encoded, b"hunter2", "", b"{}").finalize().into_bytes();
    assert_eq!(verify(&encoded, b"hunter2", Some(&STANDARD.encode(bytes)), None, b"{}", 0), Ok(()));
}

#[test]
fn a_time_is_signed_and_good_for_five_minutes() {
    for pattern in [None, Some("v0:{timestamp}:{body}")] {
        let timed = signed(Some("x-t"), pattern);
        let good = format!("sha256={}", hex(&timed, "1000"));
        let check = |time: Option<&str>, now| verify(&timed, b"hunter2", Some(&good), time, b"{}", now);
        for now in [700, 1000, 1300] {
            assert_eq!(check(Some("1000"), now), Ok(()), "{now}");
        }
        for now in [0, 699, 1301, i64::MAX] {
            assert_eq!(check(Some("1000"), now), Err(Unsigned::Stale), "{now}");
        }
        assert_eq!(check(Some("1100"), 1000), Err(Unsigned::Wrong), "another time than was signed");
        assert_eq!(check(None, 1000), Err(Unsigned::Missing));
        let noon = format!("sha256={}", hex(&timed, "noon"));
        assert_eq!(verify(&timed, b"hunter2", Some(&noon), Some("noon"), b"{}", 0), Err(Unsigned::Stale));
    }
}

#[test]
fn a_body_is_the_input_unless_a_mapping_says_otherwise() {
    let headers = BTreeMap::from([("x-event".to_owned(), "push".to_owned())]);
    let run = |rule: &Rule, body: Value| decide(rule, Uuid::nil(), body, &headers);
    let (input, trigger) = run(&Rule::default(), json!({ "a": 1 })).expect("a start");
    assert_eq!(input, json!({ "a": 1 }));
    assert_eq!((&trigger["type"], &trigger["headers"]["x-event"]), (&json!("webhook"), &json!("push")));
    for body in [json!([1]), json!("text"), Value::Null] {
        assert_eq!(run(&Rule::default(), body.clone()).expect("a start").0, json!({ "body": body }));
    }
    let template = json!({ "what": "${{ trigger.headers['x-event'] }}", "n": "${{ inputs.a }}" });
    let mapped = Rule { input: Some(template), ..Rule::default() };
    assert_eq!(run(&mapped, json!({ "a": 1 })).expect("a start").0, json!({ "what": "push", "n": 1 }));
    assert_eq!(run(&mapped, json!({ "b": 1 })).expect("a start").0, json!({ "what": "push", "n": null }));
}
