//! Tests which decision follows from an engine's answer to a start request.
//!
//! Not here: which errors the decisions prevent (`simulation`).

use expect_test::expect;
use kernel::queue::{StartDecision, StartOutcome, after_start, described};

fn tell(decision: StartDecision) -> String {
    match decision {
        StartDecision::MarkDispatched => "mark dispatched".to_owned(),
        StartDecision::Requeue { backoff, .. } => format!("requeue after {} s", backoff.as_secs()),
        StartDecision::GiveUp { .. } => "give up".to_owned(),
        StartDecision::Hold { .. } => "hold".to_owned(),
        StartDecision::Repeat { .. } => "repeat".to_owned(),
        StartDecision::Describe { .. } => "describe".to_owned(),
    }
}

#[test]
fn every_answer_leads_somewhere_and_only_refusals_are_attempts() {
    let why = || "why".to_owned();
    let answers = [
        ("started", StartOutcome::Started),
        ("already there", StartOutcome::AlreadyStarted),
        ("refused", StartOutcome::Refused(why())),
        ("unavailable", StartOutcome::Unavailable(why())),
        ("ambiguous", StartOutcome::Ambiguous(why())),
    ];
    let mut observed = String::new();
    for (name, answer) in answers {
        for (doubt, about) in [(false, ""), (true, " in doubt")] {
            let decisions = [0, 1, 2].map(|attempts| tell(after_start(answer.clone(), attempts, 3, doubt)));
            observed += &format!("{name}{about}: {}\n", decisions.join(", "));
        }
    }
    for (known, name) in [(true, "known"), (false, "unknown")] {
        let decisions = [0, 1, 2].map(|attempts| tell(described(known, why(), attempts, 3)));
        observed += &format!("described as {name}: {}\n", decisions.join(", "));
    }
    expect![[r#"
        started: mark dispatched, mark dispatched, mark dispatched
        started in doubt: mark dispatched, mark dispatched, mark dispatched
        already there: mark dispatched, mark dispatched, mark dispatched
        already there in doubt: mark dispatched, mark dispatched, mark dispatched
        refused: requeue after 5 s, requeue after 10 s, give up
        refused in doubt: describe, describe, describe
        unavailable: hold, hold, hold
        unavailable in doubt: hold, hold, hold
        ambiguous: repeat, repeat, repeat
        ambiguous in doubt: repeat, repeat, repeat
        described as known: mark dispatched, mark dispatched, mark dispatched
        described as unknown: requeue after 5 s, requeue after 10 s, give up
    "#]]
    .assert_eq(&observed);
}
