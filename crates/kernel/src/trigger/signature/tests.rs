//! Tests of signatures: reading rules, accepting and refusing requests, and recognising replays.

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::webhook::{secret, signatures};

/// `printf '{}' | openssl dgst -sha256 -hmac hunter2`
const OF_BODY: &str = "603176255680307a81ec5b984e3a7b4143d0aef1fd1576987618e55c50868ad7";

fn parsed(value: Value) -> Result<Signature, Vec<String>> {
    let mut problems = Vec::new();
    let signature = read(&value, "/signature", &mut problems);
    match (signature, problems.is_empty()) {
        (Some(signature), true) => Ok(signature),
        _ => Err(problems.into_iter().map(|problem| problem.pointer).collect()),
    }
}

fn signed(timestamp_header: Option<&str>, pattern: Option<&str>) -> Signature {
    Signature {
        scheme: Scheme::Own,
        header: "x-s".to_owned(),
        secret: "S".to_owned(),
        encoding: Encoding::Hex,
        prefix: "sha256=".to_owned(),
        timestamp_header: timestamp_header.map(str::to_owned),
        id_header: None,
        signed: pattern.map(str::to_owned),
    }
}

fn hex(signature: &Signature, timestamp: &str) -> String {
    let bytes = expected(signature, b"hunter2", timestamp, "", b"{}").finalize().into_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn given<'a>(signature: Option<&'a str>, timestamp: Option<&'a str>) -> Given<'a> {
    Given { signature, timestamp, id: None }
}

#[test]
fn a_signature_over_the_body_opens_and_no_other() {
    let plain = signed(None, None);
    let good = format!("sha256={}", hex(&plain, ""));
    let check = |text: Option<&str>, body: &[u8]| verify(&plain, b"hunter2", given(text, None), body, 0);
    assert_eq!(hex(&plain, ""), OF_BODY);
    assert_eq!(check(Some(&good), b"{}"), Ok(None));
    assert_eq!(check(None, b"{}"), Err(SignatureError::Missing));
    for wrong in [&good[7..], "sha256=", "sha256=zz", "sha256=é", &good[..good.len() - 2], &format!("{good}00")] {
        assert_eq!(check(Some(wrong), b"{}"), Err(SignatureError::Wrong), "{wrong}");
    }
    assert_eq!(check(Some(&good), b"{ }"), Err(SignatureError::Wrong), "another body");
    assert_eq!(
        verify(&plain, b"hunter3", given(Some(&good), None), b"{}", 0),
        Err(SignatureError::Wrong),
        "another secret"
    );
    let encoded = Signature { encoding: Encoding::Base64, prefix: String::new(), ..plain.clone() };
    let bytes = expected(&encoded, b"hunter2", "", "", b"{}").finalize().into_bytes();
    let text = STANDARD.encode(bytes);
    assert_eq!(verify(&encoded, b"hunter2", given(Some(&text), None), b"{}", 0), Ok(None));
}

#[test]
fn a_signature_has_one_spelling() {
    let plain = signed(None, None);
    let check = |hex: &str| {
        let text = format!("sha256={hex}");
        verify(&plain, b"hunter2", given(Some(&text), None), b"{}", 0)
    };
    assert_eq!(check(OF_BODY), Ok(None));
    // The signature begins with 60 and contains 07. Other spellings of these digits would be the same number.
    let signs = OF_BODY.replacen("07", "+7", 1);
    assert_ne!(signs, OF_BODY);
    for spelling in [OF_BODY.to_uppercase(), OF_BODY.replacen('a', "A", 1), signs, format!("+{}", &OF_BODY[1..])] {
        assert_eq!(check(&spelling), Err(SignatureError::Wrong), "{spelling}");
    }
}

#[test]
fn a_time_is_signed_and_good_for_five_minutes_and_its_signature_tells_a_replay() {
    for pattern in [None, Some("v0:{timestamp}:{body}")] {
        let timed = signed(Some("x-t"), pattern);
        let mac = hex(&timed, "1000");
        let good = format!("sha256={mac}");
        let check = |time: Option<&str>, now| verify(&timed, b"hunter2", given(Some(&good), time), b"{}", now);
        for now in [700, 1000, 1300] {
            assert_eq!(check(Some("1000"), now), Ok(Some(format!("mac/{mac}"))), "{now}");
        }
        for now in [0, 699, 1301, i64::MAX] {
            assert_eq!(check(Some("1000"), now), Err(SignatureError::Stale), "{now}");
        }
        assert_eq!(check(Some("1100"), 1000), Err(SignatureError::Wrong), "another time than was signed");
        assert_eq!(check(None, 1000), Err(SignatureError::Missing));
        for time in ["noon", "+1000", "-1000", ""] {
            let text = format!("sha256={}", hex(&timed, time));
            let observed = verify(&timed, b"hunter2", given(Some(&text), Some(time)), b"{}", 1000);
            assert_eq!(observed, Err(SignatureError::Stale), "{time}");
        }
    }
}

#[test]
fn standard_webhooks_are_a_scheme_with_headers_of_its_own() {
    let bare = parsed(json!({ "scheme": "standard_webhooks", "secret": "K" })).expect("a scheme");
    let [timestamp, id] = [&bare.timestamp_header, &bare.id_header].map(Option::as_deref);
    assert_eq!(
        (bare.header.as_str(), timestamp, id),
        ("webhook-signature", Some("webhook-timestamp"), Some("webhook-id"))
    );
    let back: Signature = serde_json::from_value(serde_json::to_value(&bare).expect("JSON")).expect("as it was");
    assert_eq!(back, bare);
    let svix =
        json!({ "scheme": "standard_webhooks", "secret": "K", "header": "Svix-Signature", "id_header": "Svix-Id" });
    let svix = parsed(svix).expect("other headers");
    assert_eq!((svix.header.as_str(), svix.id_header.as_deref()), ("svix-signature", Some("svix-id")));
    let more =
        json!({ "scheme": "standard_webhooks", "secret": "K", "prefix": "v1,", "encoding": "hex", "signed": "{body}" });
    assert_eq!(parsed(more).expect_err("problems"), ["/signature/encoding", "/signature/prefix", "/signature/signed"]);
    assert_eq!(parsed(json!({ "scheme": "standard_webhooks" })).expect_err("problems"), ["/signature"]);
    assert_eq!(
        parsed(json!({ "scheme": "jwt", "header": "X", "secret": "K" })).expect_err("problems"),
        ["/signature/scheme"]
    );
    for (more, good) in [
        (json!({ "id_header": "X-Id", "signed": "{id}:{body}" }), true),
        (json!({ "signed": "{body}" }), true),
        (json!({ "id_header": "X-Id" }), false),
        (json!({ "id_header": "X-Id", "signed": "{body}" }), false),
        (json!({ "signed": "{id}:{body}" }), false),
    ] {
        let mut own = json!({ "header": "X-S", "secret": "K" });
        own.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        assert_eq!(parsed(own).is_ok(), good, "{more}");
    }
}

#[test]
fn a_message_of_standard_webhooks_is_believed_by_any_of_its_signatures_and_known_by_its_id() {
    let scheme = parsed(json!({ "scheme": "standard_webhooks", "secret": "K" })).expect("a scheme");
    let [old, new, other] = [1, 2, 3].map(|byte| secret(&[byte; 32]));
    let (id, body) = (Uuid::from_u128(7), r#"{"type":"execution.completed"}"#);
    // Two signatures in one header, as Forebay itself sends them while a secret is rotated.
    let both = signatures([new.as_str(), old.as_str()], id, 1000, body);
    let ask = |secret: &str, text: &str, id: &str, time: &str| {
        let given = Given { signature: Some(text), timestamp: Some(time), id: Some(id) };
        verify(&scheme, secret.as_bytes(), given, body.as_bytes(), 1100)
    };
    let id = id.to_string();
    let known = Ok(Some(format!("id/{id}")));
    for secret in [&old, &new, &new[SECRET_PREFIX.len()..].to_owned(), &format!("{new}\n")] {
        assert_eq!(ask(secret, &both, &id, "1000"), known, "{secret}");
    }
    let single = both.split(' ').next().expect("one");
    assert_eq!(ask(&new, &format!("v1a,AAAA v2,x {single}"), &id, "1000"), known, "others are passed over");
    for (text, id, time, observed) in [
        (both.as_str(), "another", "1000", SignatureError::Wrong),
        (&both, &id, "1001", SignatureError::Wrong),
        (&both.replace("v1,", "v2,"), &id, "1000", SignatureError::Wrong),
        (&both.replace("v1,", ""), &id, "1000", SignatureError::Wrong),
        ("", &id, "1000", SignatureError::Wrong),
        (&"v1,AAAA ".repeat(100), &id, "1000", SignatureError::Wrong),
    ] {
        assert_eq!(ask(&new, text, id, time), Err(observed), "{text} {id} {time}");
    }
    assert_eq!(ask(&other, &both, &id, "1000"), Err(SignatureError::Wrong));
    assert_eq!(ask("whsec_?", &both, &id, "1000"), Err(SignatureError::Secret));
    let late = signatures([new.as_str()], Uuid::from_u128(7), 100, body);
    assert_eq!(ask(&new, &late, &id, "100"), Err(SignatureError::Stale));
    let missing = Given { signature: Some(&both), timestamp: Some("1000"), id: None };
    assert_eq!(verify(&scheme, new.as_bytes(), missing, body.as_bytes(), 1100), Err(SignatureError::Missing));
}

#[test]
fn an_id_cannot_take_a_part_of_what_follows_it() {
    let scheme = parsed(json!({ "scheme": "standard_webhooks", "secret": "K" })).expect("a scheme");
    let key = secret(&[1; 32]);
    // Signed as id `m`, time 1000 and body `1000.5`; sent as id `m.1000`, time 1000 and body `5`.
    let mac = expected(&scheme, &[1; 32], "1000", "m", b"1000.5").finalize().into_bytes();
    let text = format!("v1,{}", STANDARD.encode(mac));
    let ask = |id: &str, body: &[u8]| {
        let given = Given { signature: Some(&text), timestamp: Some("1000"), id: Some(id) };
        verify(&scheme, key.as_bytes(), given, body, 1000)
    };
    assert_eq!(ask("m", b"1000.5"), Ok(Some("id/m".to_owned())));
    assert_eq!(ask("m.1000", b"5"), Err(SignatureError::Wrong));
    assert_eq!(ask("", b"1000.5"), Err(SignatureError::Wrong));
}
