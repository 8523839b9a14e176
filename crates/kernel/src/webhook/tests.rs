//! Tests of webhooks: decisions on deliveries, and signing messages.

use super::*;

const ID: Uuid = Uuid::from_u128(7);

fn after(status: u16, attempt: u32, age_s: u64) -> DeliveryDecision {
    after_attempt(DeliveryResponse::Status { status, wait: None }, ID, attempt, Duration::from_secs(age_s))
}

#[test]
fn what_is_taken_is_delivered_and_all_else_is_tried_for_a_day() {
    for status in [200, 202, 204, 299] {
        assert_eq!(after(status, 1, 0), DeliveryDecision::Delivered, "{status}");
    }
    for status in [100, 301, 302, 400, 401, 404, 429, 500, 503] {
        assert!(matches!(after(status, 1, 0), DeliveryDecision::RetryAfter(_)), "{status}");
    }
    assert_eq!(after(410, 1, 0), DeliveryDecision::ReceiverGone);
    assert_eq!(after(500, 20, TRIED_FOR.as_secs() - 60), DeliveryDecision::Failed, "the next would be too late");
    assert!(matches!(
        after_attempt(DeliveryResponse::NoResponse(Class::Timeout), ID, 1, Duration::ZERO),
        DeliveryDecision::RetryAfter(_)
    ));
    for class in [Class::SecurityError, Class::ValidationError] {
        assert_eq!(
            after_attempt(DeliveryResponse::NoResponse(class), ID, 1, Duration::ZERO),
            DeliveryDecision::Failed,
            "{class:?}"
        );
    }
}

#[test]
fn waits_grow_are_spread_and_heed_the_receiver() {
    let waits: Vec<u64> = (1..=10)
        .map(|attempt| match after(500, attempt, 0) {
            DeliveryDecision::RetryAfter(wait) => wait.as_millis().try_into().expect("a wait"),
            other => panic!("{other:?}"),
        })
        .collect();
    for (wait, full) in waits.iter().zip([5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 14_400, 14_400]) {
        assert!((full * 500..=full * 1_000).contains(wait), "{wait} of {full} s");
    }
    assert_ne!(waits[8], waits[9], "each attempt has its own jitter");
    let asked = DeliveryResponse::Status { status: 429, wait: Some(Duration::from_secs(900)) };
    assert_eq!(after_attempt(asked, ID, 1, Duration::ZERO), DeliveryDecision::RetryAfter(Duration::from_secs(900)));
    let never = DeliveryResponse::Status { status: 503, wait: Some(TRIED_FOR) };
    assert_eq!(after_attempt(never, ID, 1, Duration::from_secs(1)), DeliveryDecision::Failed);
}

#[test]
fn a_webhook_is_given_up_after_days_of_nothing_else() {
    assert!(!must_disable(FAILING_FOR - Duration::from_secs(1)));
    assert!(must_disable(FAILING_FOR));
}

#[test]
fn a_signature_is_that_of_the_standard_and_there_is_one_for_each_secret() {
    // The test vector of Standard Webhooks, except for the id, which is a UUID here.
    let (one, two) = (secret(&[1; 32]), secret(&[2; 32]));
    let signed = |secrets: &[&str]| signatures(secrets.iter().copied(), ID, 1_614_265_330, r#"{"test": 2432232314}"#);
    let both = signed(&[&one, &two]);
    assert_eq!(both, format!("{} {}", signed(&[&one]), signed(&[&two])));
    assert!(both.split(' ').all(|part| part.starts_with("v1,") && part.len() == 3 + 44), "{both}");
    assert_ne!(signed(&[&one]), signatures([one.as_str()], ID, 1_614_265_331, r#"{"test": 2432232314}"#));
    assert_eq!(signed(&["no secret"]), "");
}

#[test]
fn a_message_says_what_ended_and_where_the_rest_is() {
    let at = |second: i64| Timestamp::from_second(second).expect("a time");
    let ended = EndedExecution {
        execution: ExecutionId(ID),
        workspace: WorkspaceId(ID),
        definition: DefinitionId(ID),
        workflow_name: "order".to_owned(),
        status: execution::Status::TimedOut,
        output: None,
        error: Some(json!({ "type": "TIMEOUT" })),
        cut: false,
        created_at: at(0),
        started_at: Some(at(1)),
        completed_at: at(3),
        duration_ms: Some(2_000),
    };
    let body: Value = serde_json::from_str(&message(&ended)).expect("JSON");
    assert_eq!(body["type"], "execution.timed_out");
    assert_eq!((&body["data"]["status"], &body["timestamp"]), (&json!("TIMED_OUT"), &json!("1970-01-01T00:00:03Z")));
    assert_eq!(body["data"]["url"], format!("/api/v1/workflow/executions/{ID}"));
    assert_eq!(message(&ended), message(&ended.clone()), "the same at each attempt");
}

#[test]
fn a_webhook_has_a_url_and_ends_that_exist() {
    let long = format!("https://{}", "a".repeat(MAX_URL_LEN));
    for (url, fine) in [
        ("https://a.example/b?c", true),
        ("http://[::1]:8080", true),
        ("ftp://a.example", false),
        ("a.example", false),
        ("https://a.example/b c", false),
        ("https://a.example/\0", false),
        (long.as_str(), false),
    ] {
        assert_eq!(check_url(url).is_ok(), fine, "{url}");
    }
    assert_eq!(check_events(&ENDS), Ok(()));
    assert_eq!(check_events(&[]), Err(InvalidWebhook::Events));
    assert_eq!(check_events(&[execution::Status::Completed, execution::Status::Running]), Err(InvalidWebhook::Events));
    assert_eq!([500, 501].map(|length| check_description(&"ä".repeat(length)).is_ok()), [true, false]);
}
