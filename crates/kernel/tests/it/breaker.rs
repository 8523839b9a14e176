//! Tests when the breaker stops start requests, and when it permits them again.

use std::time::Duration;

use expect_test::{Expect, expect};
use kernel::queue::StartOutcome;
use kernel::queue::breaker::{Breaker, Permission, State};

/// Plays a script: `+500` moves the clock by ms, `ask` sends a start, `claim N` asks for room with N
/// waiting, and an answer's name (with `probe` behind it for the probe's) is received.
fn check(script: &[&str], expected: Expect) {
    let (mut breaker, mut now, mut observed) = (Breaker::default(), Duration::ZERO, String::new());
    for line in script {
        let mut words = line.split(' ');
        let (word, probe) = (words.next().unwrap_or_default(), words.clone().next() == Some("probe"));
        let why = || "why".to_owned();
        let said = match word {
            "ask" => match breaker.permit(now) {
                Permission::Send => "go".to_owned(),
                Permission::Probe => "probe".to_owned(),
                Permission::WaitUntil(at) => format!("wait until {}", at.as_millis()),
                Permission::WaitForProbe => "wait".to_owned(),
            },
            "claim" => {
                let waiting = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
                match breaker.claim_limit(now, waiting) {
                    usize::MAX => "all".to_owned(),
                    some => some.to_string(),
                }
            }
            "dropped" => shown(&mut breaker, |breaker| breaker.abandon_probe(now)),
            "started" => shown(&mut breaker, |breaker| breaker.record(now, &StartOutcome::Started, probe)),
            "refused" => shown(&mut breaker, |breaker| breaker.record(now, &StartOutcome::Refused(why()), probe)),
            "ambiguous" => shown(&mut breaker, |breaker| breaker.record(now, &StartOutcome::Ambiguous(why()), probe)),
            "unavailable" => {
                shown(&mut breaker, |breaker| breaker.record(now, &StartOutcome::Unavailable(why()), probe))
            }
            clock => {
                now += Duration::from_millis(clock[1..].parse().expect("a number"));
                continue;
            }
        };
        observed += &format!("{} {line}: {said}\n", now.as_millis());
    }
    expected.assert_eq(&observed);
}

fn shown(breaker: &mut Breaker, step: impl FnOnce(&mut Breaker)) -> String {
    step(breaker);
    match breaker.state() {
        State::Closed => "closed".to_owned(),
        State::Open { since, probe_at, .. } => {
            format!("open since {}, probe at {}", since.as_millis(), probe_at.as_millis())
        }
        State::HalfOpen { since, .. } => format!("half-open since {}", since.as_millis()),
    }
}

#[test]
fn an_unavailable_engine_stops_claims_until_a_probe_is_answered() {
    let script = [
        "ask",
        "claim 0",
        "+100",
        "unavailable",
        "claim 3",
        "claim 0",
        "ask",
        "+500",
        "claim 3",
        "claim 0",
        "ask",
        "ask",
        "claim 0",
        "started probe",
        "ask",
        "claim 0",
    ];
    check(
        &script,
        expect![[r#"
        0 ask: go
        0 claim 0: all
        100 unavailable: open since 100, probe at 600
        100 claim 3: 0
        100 claim 0: 0
        100 ask: wait until 600
        600 claim 3: 0
        600 claim 0: 1
        600 ask: probe
        600 ask: wait
        600 claim 0: 0
        600 started probe: closed
        600 ask: go
        600 claim 0: all
    "#]],
    );
}

#[test]
fn each_failed_probe_makes_the_pause_longer() {
    let mut script = vec!["unavailable"];
    for _ in 0..7 {
        script.extend(["+20000", "ask", "unavailable probe"]);
    }
    script.extend(["+20000", "ask", "ambiguous probe", "+20000", "ask", "refused probe", "unavailable"]);
    check(
        &script,
        expect![[r#"
        0 unavailable: open since 0, probe at 500
        20000 ask: probe
        20000 unavailable probe: open since 0, probe at 21000
        40000 ask: probe
        40000 unavailable probe: open since 0, probe at 42000
        60000 ask: probe
        60000 unavailable probe: open since 0, probe at 64000
        80000 ask: probe
        80000 unavailable probe: open since 0, probe at 88000
        100000 ask: probe
        100000 unavailable probe: open since 0, probe at 110000
        120000 ask: probe
        120000 unavailable probe: open since 0, probe at 130000
        140000 ask: probe
        140000 unavailable probe: open since 0, probe at 150000
        160000 ask: probe
        160000 ambiguous probe: open since 0, probe at 170000
        180000 ask: probe
        180000 refused probe: closed
        180000 unavailable: open since 180000, probe at 180500
    "#]],
    );
}

#[test]
fn an_earlier_start_neither_closes_nor_prolongs_the_pause() {
    let script = [
        "refused",
        "ambiguous",
        "unavailable",
        "+10",
        "unavailable",
        "started",
        "+500",
        "ask",
        "unavailable",
        "dropped",
        "ask",
    ];
    check(
        &script,
        expect![[r#"
        0 refused: closed
        0 ambiguous: closed
        0 unavailable: open since 0, probe at 500
        10 unavailable: open since 0, probe at 500
        10 started: open since 0, probe at 500
        510 ask: probe
        510 unavailable: half-open since 0
        510 dropped: open since 0, probe at 510
        510 ask: probe
    "#]],
    );
}
