//! Tests the meaning of cron expressions, also when clocks change; which ticks are fired; and what is refused.

use std::time::Duration;

use expect_test::{Expect, expect};
use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use kernel::definition::parse;
use kernel::queue::Priority;
use kernel::schedule::{
    Calendar, CatchUp, DueTicks, MAX_IN_DOCUMENT, MOST_CAUGHT_UP, Overlap, Rule, TickDecision, Timing, TimingError,
    check, decide_tick, due,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn calendar(cron: &str, timezone: &str) -> Calendar {
    Calendar::read(&timing(cron, timezone), Timestamp::UNIX_EPOCH).expect("a calendar")
}

fn timing(cron: &str, timezone: &str) -> Timing {
    Timing::Cron { cron: cron.to_owned(), timezone: timezone.to_owned() }
}

/// The ticks after a time, by the clock of their zone, and the same backwards.
fn check_ticks(cron: &str, timezone: &str, from: &str, count: usize, expected: Expect) {
    let calendar = calendar(cron, timezone);
    let ticks = calendar.next(at(from), count);
    let zone = TimeZoneDatabase::bundled().get(timezone).expect("a zone");
    let shown: Vec<String> =
        ticks.iter().map(|tick| tick.to_zoned(zone.clone()).strftime("%a %F %T %:z").to_string()).collect();
    expected.assert_eq(&shown.join("\n"));
    assert_eq!(backwards(&calendar, at(from), ticks.last().copied()), ticks, "{cron} backwards");
}

fn backwards(calendar: &Calendar, from: Timestamp, until: Option<Timestamp>) -> Vec<Timestamp> {
    let before = |tick: &Timestamp| calendar.until(tick.checked_sub(Duration::from_secs(1)).ok()?);
    let back = std::iter::successors(until.and_then(|until| calendar.until(until)), before);
    let mut ticks: Vec<Timestamp> = back.take_while(|tick| *tick > from).collect();
    ticks.reverse();
    ticks
}

#[test]
fn an_expression_means_what_cron_means() {
    let from = "2026-01-01T00:00:00Z";
    check_ticks(
        "*/20 9 * * MON-FRI",
        "UTC",
        from,
        4,
        expect![[r#"
        Thu 2026-01-01 09:00:00 +00:00
        Thu 2026-01-01 09:20:00 +00:00
        Thu 2026-01-01 09:40:00 +00:00
        Fri 2026-01-02 09:00:00 +00:00"#]],
    );
    // Either day will do.
    check_ticks(
        "0 0 13 * 5",
        "UTC",
        from,
        4,
        expect![[r#"
        Fri 2026-01-02 00:00:00 +00:00
        Fri 2026-01-09 00:00:00 +00:00
        Tue 2026-01-13 00:00:00 +00:00
        Fri 2026-01-16 00:00:00 +00:00"#]],
    );
    // Both must.
    check_ticks(
        "0 0 13 * +5",
        "UTC",
        from,
        2,
        expect![[r#"
        Fri 2026-02-13 00:00:00 +00:00
        Fri 2026-03-13 00:00:00 +00:00"#]],
    );
}

/// The next ticks of expressions, each of which must be read as the other.
fn check_same(pairs: &[(&str, &str)]) {
    let from = at("2026-01-01T00:00:00Z");
    for (written, meant) in pairs {
        assert_eq!(refusal(written, "UTC"), None, "{written}");
        assert_eq!(calendar(written, "UTC").next(from, 40), calendar(meant, "UTC").next(from, 40), "{written}");
    }
}

#[test]
fn names_are_read_in_any_case_short_or_whole() {
    check_same(&[
        ("0 0 * * friday", "0 0 * * 5"),
        ("0 0 * * Fri", "0 0 * * 5"),
        ("0 0 * * Monday-FRIDAY", "0 0 * * 1-5"),
        ("0 0 * * fri-sunday", "0 0 * * 5,6,0"),
        ("0 0 * * SUN-SUN", "0 0 * * 0"),
        ("0 0 * * sunday-tue", "0 0 * * 0-2"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 5,6,0"),
        ("0 0 * * FRIDAYL", "0 0 * * 5L"),
        ("0 0 * * 7L", "0 0 * * 0L"),
        ("0 0 * * sunday#2", "0 0 * * 0#2"),
        ("0 0 * * 7#2", "0 0 * * 0#2"),
        ("0 0 1 march *", "0 0 1 3 *"),
        ("0 0 1 jan-April/3,sep,December *", "0 0 1 1,4,9,12 *"),
        ("30 0 0 1 June *", "30 0 0 1 6 *"),
        ("@Midnight", "0 0 * * *"),
        ("@daily", "0 0 * * *"),
        ("@annually", "0 0 1 1 *"),
        (" @weekly ", "0 0 * * 0"),
    ]);
}

#[test]
fn a_field_that_lets_every_day_through_is_a_star_however_it_is_written() {
    check_same(&[
        ("0 0 */1 * 5", "0 0 * * 5"),
        ("0 0 ? * 5", "0 0 * * 5"),
        ("0 0 ?/1 * 5", "0 0 * * 5"),
        ("0 0 *,13 * 5", "0 0 * * 5"),
        ("0 0 13 * */1", "0 0 13 * *"),
        ("0 0 13 * ?", "0 0 13 * *"),
        ("0 0 13 */1 *", "0 0 13 * *"),
        ("*/1 */1 */1 */1 */1", "* * * * *"),
    ]);
    // A list or range of all days is still a choice of days: either will do, as POSIX says.
    check_same(&[("0 0 1-31 * 5", "0 0 * * *"), ("0 0 */2 * 1", "0 0 */2 * 1")]);
}

#[test]
fn the_last_the_nearest_and_the_nth_day_are_known() {
    let from = "2026-01-01T00:00:00Z";
    check_ticks(
        "30 6 L * *",
        "UTC",
        from,
        3,
        expect![[r#"
        Sat 2026-01-31 06:30:00 +00:00
        Sat 2026-02-28 06:30:00 +00:00
        Tue 2026-03-31 06:30:00 +00:00"#]],
    );
    check_ticks(
        "0 9 15W * *",
        "UTC",
        from,
        3,
        expect![[r#"
        Thu 2026-01-15 09:00:00 +00:00
        Mon 2026-02-16 09:00:00 +00:00
        Mon 2026-03-16 09:00:00 +00:00"#]],
    );
    check_ticks(
        "0 9 * * MON#1,5L",
        "UTC",
        from,
        4,
        expect![[r#"
        Mon 2026-01-05 09:00:00 +00:00
        Fri 2026-01-30 09:00:00 +00:00
        Mon 2026-02-02 09:00:00 +00:00
        Fri 2026-02-27 09:00:00 +00:00"#]],
    );
    check_ticks(
        "0 0 29 2 *",
        "UTC",
        from,
        2,
        expect![[r#"
        Tue 2028-02-29 00:00:00 +00:00
        Sun 2032-02-29 00:00:00 +00:00"#]],
    );
    check_ticks(
        "*/15 * * * * *",
        "UTC",
        from,
        3,
        expect![[r#"
        Thu 2026-01-01 00:00:15 +00:00
        Thu 2026-01-01 00:00:30 +00:00
        Thu 2026-01-01 00:00:45 +00:00"#]],
    );
    check_ticks(
        "@daily",
        "Asia/Kolkata",
        from,
        2,
        expect![[r#"
        Fri 2026-01-02 00:00:00 +05:30
        Sat 2026-01-03 00:00:00 +05:30"#]],
    );
}

#[test]
fn a_fixed_time_that_is_left_out_comes_after_the_gap_and_one_that_is_repeated_comes_once() {
    check_ticks(
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00:00Z",
        2,
        expect![[r#"
        Sun 2026-03-29 03:00:00 +02:00
        Mon 2026-03-30 02:30:00 +02:00"#]],
    );
    check_ticks(
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00:00Z",
        2,
        expect![[r#"
        Sun 2026-10-25 02:30:00 +02:00
        Mon 2026-10-26 02:30:00 +01:00"#]],
    );
    check_ticks(
        "30 2 * * *",
        "America/New_York",
        "2026-03-07T12:00:00Z",
        2,
        expect![[r#"
        Sun 2026-03-08 03:00:00 -04:00
        Mon 2026-03-09 02:30:00 -04:00"#]],
    );
    check_ticks(
        "30 1 * * *",
        "America/New_York",
        "2026-10-31T12:00:00Z",
        2,
        expect![[r#"
        Sun 2026-11-01 01:30:00 -04:00
        Mon 2026-11-02 01:30:00 -05:00"#]],
    );
}

#[test]
fn beside_a_gap_times_are_what_they_are_and_a_gap_may_be_short_or_a_day() {
    // Times beside the gap are what they are.
    check_ticks(
        "0 1 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00:00Z",
        2,
        expect![[r#"
        Sun 2026-03-29 01:00:00 +01:00
        Mon 2026-03-30 01:00:00 +02:00"#]],
    );
    check_ticks(
        "0 3 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00:00Z",
        2,
        expect![[r#"
        Sun 2026-03-29 03:00:00 +02:00
        Mon 2026-03-30 03:00:00 +02:00"#]],
    );
    // A whole day was left out.
    check_ticks(
        "0 12 * * *",
        "Pacific/Apia",
        "2011-12-29T12:00:00Z",
        3,
        expect![[r#"
        Thu 2011-12-29 12:00:00 -10:00
        Sat 2011-12-31 00:00:00 +14:00
        Sat 2011-12-31 12:00:00 +14:00"#]],
    );
    // Half an hour is left out, and half an hour repeated.
    check_ticks(
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T00:00:00Z",
        2,
        expect![[r#"
        Sun 2026-10-04 02:30:00 +11:00
        Mon 2026-10-05 02:15:00 +11:00"#]],
    );
    check_ticks(
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T00:00:00Z",
        2,
        expect![[r#"
        Sun 2026-04-05 01:45:00 +11:00
        Mon 2026-04-06 01:45:00 +10:30"#]],
    );
}

#[test]
fn several_times_a_day_follow_the_wall_clock_through_a_change() {
    check_ticks(
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-03-29T00:15:00Z",
        4,
        expect![[r#"
        Sun 2026-03-29 01:30:00 +01:00
        Sun 2026-03-29 03:00:00 +02:00
        Sun 2026-03-29 03:30:00 +02:00
        Sun 2026-03-29 04:00:00 +02:00"#]],
    );
    check_ticks(
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-10-24T23:45:00Z",
        6,
        expect![[r#"
        Sun 2026-10-25 02:00:00 +02:00
        Sun 2026-10-25 02:30:00 +02:00
        Sun 2026-10-25 02:00:00 +01:00
        Sun 2026-10-25 02:30:00 +01:00
        Sun 2026-10-25 03:00:00 +01:00
        Sun 2026-10-25 03:30:00 +01:00"#]],
    );
    check_ticks(
        "*/30 * * * *",
        "America/New_York",
        "2026-11-01T04:45:00Z",
        5,
        expect![[r#"
        Sun 2026-11-01 01:00:00 -04:00
        Sun 2026-11-01 01:30:00 -04:00
        Sun 2026-11-01 01:00:00 -05:00
        Sun 2026-11-01 01:30:00 -05:00
        Sun 2026-11-01 02:00:00 -05:00"#]],
    );
    check_ticks(
        "*/15 1-2 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T14:00:00Z",
        7,
        expect![[r#"
        Sun 2026-04-05 01:15:00 +11:00
        Sun 2026-04-05 01:30:00 +11:00
        Sun 2026-04-05 01:45:00 +11:00
        Sun 2026-04-05 01:30:00 +10:30
        Sun 2026-04-05 01:45:00 +10:30
        Sun 2026-04-05 02:00:00 +10:30
        Sun 2026-04-05 02:15:00 +10:30"#]],
    );
    check_ticks(
        "*/15 1-2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T15:00:00Z",
        5,
        expect![[r#"
        Sun 2026-10-04 01:45:00 +10:30
        Sun 2026-10-04 02:30:00 +11:00
        Sun 2026-10-04 02:45:00 +11:00
        Mon 2026-10-05 01:00:00 +11:00
        Mon 2026-10-05 01:15:00 +11:00"#]],
    );
}

fn refusal(cron: &str, timezone: &str) -> Option<String> {
    let rule = Rule {
        timing: timing(cron, timezone),
        input: None,
        priority: Priority::default(),
        concurrency_key: None,
        overlap: Overlap::default(),
        catch_up: CatchUp::default(),
    };
    check(&rule).first().map(ToString::to_string)
}

const NO_EXPRESSIONS: &[&str] = &[
    "",
    " ",
    "* * * *",
    "* * * * * * *",
    "* * * * * 2027",
    "* * * * * *",
    "*/5 * * * * *",
    "0,1 * * * * *",
    "55,0 * * * * *",
    "0 0 31 2 *",
    "0 0 30 2 *",
    "0 0 31 4,6,9,11 *",
    "60 * * * *",
    "* 24 * * *",
    "0 0 0 * *",
    "0 0 32 * *",
    "0 0 * 13 *",
    "0 0 * * 8",
    "0 0 * * MON#6",
    "0 0 * * MON#0",
    "0 0 32W * *",
    "0 0 LW L *",
    "L * * * *",
    "* W * * *",
    "*/0 * * * *",
    "5-1 * * * *",
    "-1 * * * *",
    "1--2 * * * *",
    "*/99999999999999999999 * * * *",
    "99999999999 * * * *",
    "@never",
    "@reboot",
    "a b c d e",
    "0 0 * * MONDAYS",
    "0 0 MON * *",
    "JAN * * * *",
    "0 0 * MON1 *",
    "0 0 * JANFEB *",
    "0 0 * * JAN",
    "0 0 * * 1MON",
    "0 0 * * L",
    "0 0 * * FRI-MON",
    "0 0 * * MON-",
    "0 0 * * 5#",
    "0 0 * * 5#+1",
    "0 0 L,LW * *",
    "0 0 L-3 * *",
    "0 ? * * *",
    "0 0 +1 * *",
    "5/15 * * * *",
    "/15 * * * *",
    "1,,2 * * * *",
    "*/+5 * * * *",
    "1/2/3 * * * *",
    "0 0 * * MON#1#2",
    "@daily 1",
    "* * * * *; rm",
    "0 0 \u{661} * *",
    "0\n0 * * *",
    "\u{202e}0 0 * * *",
];

#[test]
fn seconds_of_two_minutes_are_near_only_where_the_minutes_are() {
    for taken in ["0,59 0 0 * * *", "5,55 */2 * * * *", "0,50 59 * * * *"] {
        assert_eq!(refusal(taken, "UTC"), None, "{taken}");
    }
    for refused in ["0,59 0,1 0 * * *", "0,59 0,59 * * * *", "0,5 0 0 * * *"] {
        assert!(refusal(refused, "UTC").is_some_and(|why| why.contains("too often")), "{refused}");
    }
}

#[test]
fn an_invalid_expression_is_refused_with_its_reason() {
    let list = (0..60).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let huge = format!("{list},{list} * * * *");
    let observed: Vec<String> = NO_EXPRESSIONS
        .iter()
        .copied()
        .chain([huge.as_str()])
        .map(|cron| {
            format!("{:?}: {}", &cron[..cron.len().min(30)], refusal(cron, "UTC").unwrap_or_else(|| "TAKEN".to_owned()))
        })
        .collect();
    expect![[r#"
        "": /cron: must be 1 to 200 characters
        " ": /cron: must have five fields (minute hour day month weekday), or six with seconds before them
        "* * * *": /cron: must have five fields (minute hour day month weekday), or six with seconds before them
        "* * * * * * *": /cron: must have five fields (minute hour day month weekday), or six with seconds before them
        "* * * * * 2027": /cron: 2027 is not a valid weekday: the field of weekdays takes 0 to 7, or names such as MON or Monday, also as 5L or MON#1
        "* * * * * *": /cron: ticks too often: ticks must be at least 10 seconds apart
        "*/5 * * * * *": /cron: ticks too often: ticks must be at least 10 seconds apart
        "0,1 * * * * *": /cron: ticks too often: ticks must be at least 10 seconds apart
        "55,0 * * * * *": /cron: ticks too often: ticks must be at least 10 seconds apart
        "0 0 31 2 *": /cron: never matches: no day fulfils all its fields
        "0 0 30 2 *": /cron: never matches: no day fulfils all its fields
        "0 0 31 4,6,9,11 *": /cron: never matches: no day fulfils all its fields
        "60 * * * *": /cron: 60 is not a valid minute: the field of minutes takes 0 to 59
        "* 24 * * *": /cron: 24 is not a valid hour: the field of hours takes 0 to 23
        "0 0 0 * *": /cron: 0 is not a valid day: the field of days takes 1 to 31, L, LW, or a day with W such as 15W
        "0 0 32 * *": /cron: 32 is not a valid day: the field of days takes 1 to 31, L, LW, or a day with W such as 15W
        "0 0 * 13 *": /cron: 13 is not a valid month: the field of months takes 1 to 12, or names such as JAN or January
        "0 0 * * 8": /cron: 8 is not a valid weekday: the field of weekdays takes 0 to 7, or names such as MON or Monday, also as 5L or MON#1
        "0 0 * * MON#6": /cron: MON#6: the number after # must be 1 to 5: it selects one such weekday of the month
        "0 0 * * MON#0": /cron: MON#0: the number after # must be 1 to 5: it selects one such weekday of the month
        "0 0 32W * *": /cron: 32 is not a valid day: the field of days takes 1 to 31, L, LW, or a day with W such as 15W
        "0 0 LW L *": /cron: L is not a valid month: the field of months takes 1 to 12, or names such as JAN or January
        "L * * * *": /cron: L is not a valid minute: the field of minutes takes 0 to 59
        "* W * * *": /cron: W is not a valid hour: the field of hours takes 0 to 23
        "*/0 * * * *": /cron: */0: a step is a whole number from 1 to 999
        "5-1 * * * *": /cron: 5-1 ends before it begins: write two ranges with a comma between them
        "-1 * * * *": /cron: a minute is missing: the field of minutes takes 0 to 59
        "1--2 * * * *": /cron: -2 is not a valid minute: the field of minutes takes 0 to 59
        "*/99999999999999999999 * * * *": /cron: */99999999999999999999: a step is a whole number from 1 to 999
        "99999999999 * * * *": /cron: 99999999999 is not a valid minute: the field of minutes takes 0 to 59
        "@never": /cron: @never is not known: use one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually
        "@reboot": /cron: @reboot is not known: use one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually
        "a b c d e": /cron: A is not a valid minute: the field of minutes takes 0 to 59
        "0 0 * * MONDAYS": /cron: MONDAYS is not a valid weekday: the field of weekdays takes 0 to 7, or names such as MON or Monday, also as 5L or MON#1
        "0 0 MON * *": /cron: MON is not a valid day: the field of days takes 1 to 31, L, LW, or a day with W such as 15W
        "JAN * * * *": /cron: JAN is not a valid minute: the field of minutes takes 0 to 59
        "0 0 * MON1 *": /cron: MON1 is not a valid month: the field of months takes 1 to 12, or names such as JAN or January
        "0 0 * JANFEB *": /cron: JANFEB is not a valid month: the field of months takes 1 to 12, or names such as JAN or January
        "0 0 * * JAN": /cron: JAN is not a valid weekday: the field of weekdays takes 0 to 7, or names such as MON or Monday, also as 5L or MON#1
        "0 0 * * 1MON": /cron: 1MON is not a valid weekday: the field of weekdays takes 0 to 7, or names such as MON or Monday, also as 5L or MON#1
        "0 0 * * L": /cron: L needs a weekday before it, such as 5L for the last Friday
        "0 0 * * FRI-MON": /cron: FRI-MON ends before it begins: write two ranges with a comma between them
        "0 0 * * MON-": /cron: a weekday is missing: the field of weekdays takes 0 to 7, or names such as MON or Monday, also as 5L or MON#1
        "0 0 * * 5#": /cron: 5#: the number after # must be 1 to 5: it selects one such weekday of the month
        "0 0 * * 5#+1": /cron: 5#+1: the number after # must be 1 to 5: it selects one such weekday of the month
        "0 0 L,LW * *": /cron: L and LW cannot stand in one list: write two schedules
        "0 0 L-3 * *": /cron: L is not a valid day: the field of days takes 1 to 31, L, LW, or a day with W such as 15W
        "0 ? * * *": /cron: ? is not a valid hour: the field of hours takes 0 to 23
        "0 0 +1 * *": /cron: +1 is not a valid day: the field of days takes 1 to 31, L, LW, or a day with W such as 15W
        "5/15 * * * *": /cron: 5/15: a step needs a range before it, such as 5-59/15 or */15
        "/15 * * * *": /cron: a minute is missing: the field of minutes takes 0 to 59
        "1,,2 * * * *": /cron: the field of minutes has an empty part
        "*/+5 * * * *": /cron: */+5: a step is a whole number from 1 to 999
        "1/2/3 * * * *": /cron: 1/2/3: a step is a whole number from 1 to 999
        "0 0 * * MON#1#2": /cron: MON#1#2: the number after # must be 1 to 5: it selects one such weekday of the month
        "@daily 1": /cron: must have five fields (minute hour day month weekday), or six with seconds before them
        "* * * * *; rm": /cron: ';' is not allowed in a cron expression
        "0 0 ١ * *": /cron: '١' is not allowed in a cron expression
        "0\n0 * * *": /cron: '\n' is not allowed in a cron expression
        "\u{202e}0 0 * * *": /cron: '\u{202e}' is not allowed in a cron expression
        "0,1,2,3,4,5,6,7,8,9,10,11,12,1": /cron: must be 1 to 200 characters"#]]
    .assert_eq(&observed.join("\n"));
    assert_eq!(refusal(&format!("{list} * * * *"), "UTC"), None, "every minute, written out");
}

#[test]
fn an_unknown_time_zone_is_refused() {
    for zone in [
        "",
        "Mars/Olympus",
        "Europe/Berlin ",
        "../etc/passwd",
        "/etc/localtime",
        "EST5EDT4,M3.2.0",
        "Etc/Unknown",
        "+02:00",
        &"A".repeat(65),
    ] {
        let observed = refusal("0 0 * * *", zone).expect("a refusal");
        assert!(observed.starts_with("/timezone: must be a time zone"), "{zone}: {observed}");
    }
}

fn check_due(catch_up: CatchUp, next_at: &str, now: &str, expected: Expect) {
    let due = due(&calendar("0 * * * *", "UTC"), catch_up, at(next_at), at(now));
    let missed = due.missed.map_or_else(|| "-".to_owned(), |(from, before)| format!("{from}..{before}"));
    let run: Vec<String> = due.run.iter().map(ToString::to_string).collect();
    let next = due.next_at.map_or_else(|| "-".to_owned(), |next| next.to_string());
    expected.assert_eq(&format!("missed {missed}; run {}; next {next}", run.join(" ")));
}

#[test]
fn catch_up_decides_which_missed_ticks_run() {
    let (ten, soon) = ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00.3Z");
    for catch_up in CatchUp::ALL {
        check_due(catch_up, ten, soon, expect!["missed -; run 2026-01-01T10:00:00Z; next 2026-01-01T11:00:00Z"]);
        check_due(catch_up, ten, "2026-01-01T09:59:59.9Z", expect!["missed -; run ; next 2026-01-01T10:00:00Z"]);
    }
    let later = "2026-01-01T12:30:00Z";
    check_due(
        CatchUp::Skip,
        ten,
        later,
        expect!["missed 2026-01-01T10:00:00Z..2026-01-01T13:00:00Z; run ; next 2026-01-01T13:00:00Z"],
    );
    check_due(
        CatchUp::Last,
        ten,
        later,
        expect![
            "missed 2026-01-01T10:00:00Z..2026-01-01T12:00:00Z; run 2026-01-01T12:00:00Z; next 2026-01-01T13:00:00Z"
        ],
    );
    check_due(
        CatchUp::All,
        ten,
        later,
        expect![
            "missed -; run 2026-01-01T10:00:00Z 2026-01-01T11:00:00Z 2026-01-01T12:00:00Z; next 2026-01-01T13:00:00Z"
        ],
    );
    // The last is on time, those before it were missed.
    check_due(
        CatchUp::Skip,
        ten,
        "2026-01-01T12:00:05Z",
        expect![
            "missed 2026-01-01T10:00:00Z..2026-01-01T12:00:00Z; run 2026-01-01T12:00:00Z; next 2026-01-01T13:00:00Z"
        ],
    );
    // A time that is no tick, of another build or another zone.
    check_due(
        CatchUp::All,
        "2026-01-01T10:30:00Z",
        "2026-01-01T10:45:00Z",
        expect!["missed -; run ; next 2026-01-01T11:00:00Z"],
    );
}

#[test]
fn the_number_of_missed_ticks_that_run_is_limited() {
    let calendar = calendar("*/10 * * * * *", "Europe/Berlin");
    let (from, now) = (at("2020-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"));
    let due = due(&calendar, CatchUp::All, from, now);
    assert_eq!((due.run.len(), due.run.last()), (MOST_CAUGHT_UP, Some(&now)));
    assert_eq!(due.missed, Some((from, due.run[0])));
}

#[test]
fn a_single_time_ticks_once() {
    let once = Timing::At { at: at("2026-01-01T10:00:00.25Z") };
    let calendar = Calendar::read(&once, Timestamp::UNIX_EPOCH).expect("a calendar");
    let tick = at("2026-01-01T10:00:00.25Z");
    let on_time = due(&calendar, CatchUp::Skip, tick, at("2026-01-01T10:00:01Z"));
    assert_eq!(on_time, DueTicks { missed: None, run: vec![tick], next_at: None });
    let late = at("2026-01-01T11:00:00Z");
    assert_eq!(due(&calendar, CatchUp::Last, tick, late).run, [tick]);
    assert_eq!(
        due(&calendar, CatchUp::Skip, tick, late),
        DueTicks { missed: Some((tick, late)), run: vec![], next_at: None }
    );
    let far = Timing::At { at: Timestamp::MAX };
    assert_eq!(Calendar::read(&far, Timestamp::UNIX_EPOCH).err(), Some(TimingError::At));
}

#[test]
fn overlap_decides_what_a_tick_does() {
    let mut observed = String::new();
    for overlap in Overlap::ALL {
        for (open, buffered) in [(false, false), (true, false), (true, true)] {
            let fate = match decide_tick(overlap, open, buffered) {
                TickDecision::Start => "start",
                TickDecision::Buffer => "buffer",
                TickDecision::Skip(_) => "skip",
            };
            observed += &format!("{} open={open} buffered={buffered}: {fate}\n", overlap.name());
        }
    }
    expect![[r#"
        skip open=false buffered=false: start
        skip open=true buffered=false: skip
        skip open=true buffered=true: skip
        buffer_one open=false buffered=false: start
        buffer_one open=true buffered=false: buffer
        buffer_one open=true buffered=true: skip
        allow open=false buffered=false: start
        allow open=true buffered=false: start
        allow open=true buffered=true: start
    "#]]
    .assert_eq(&observed);
}

#[test]
fn a_document_has_its_schedules_checked_with_its_inputs() {
    let document = |schedule: Value| {
        json!({
            "inputs": { "region": { "type": "string", "required": true } }, "on": { "schedule": schedule },
            "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } },
        })
    };
    let good = json!([
        { "cron": "0 6 * * *", "timezone": "Europe/Berlin", "input": { "region": "eu" }, "overlap": "buffer_one", "catch_up": "all" },
        { "cron": "0 6 * * *", "input": { "region": "us" }, "priority": 1, "concurrency_key": "us" },
    ]);
    let (definition, _) = parse::check(&document(good)).expect("a workflow");
    let stored = serde_json::to_value(&definition).expect("JSON");
    expect![[r#"[{"cron":"0 6 * * *","timezone":"Europe/Berlin","input":{"region":"eu"},"priority":3,"overlap":"buffer_one","catch_up":"all"},{"cron":"0 6 * * *","timezone":"UTC","input":{"region":"us"},"priority":1,"concurrency_key":"us","overlap":"skip","catch_up":"last"}]"#]].assert_eq(&stored["on"]["schedule"].to_string());
    assert_eq!(parse::check_stored(&stored).expect("as stored").0, definition);
    let bad = json!([
        { "cron": "0 6 * * *" },
        { "cron": "0 6 * * *", "input": { "region": "eu" } },
        { "cron": "* * * * * *", "timezone": "Mars", "overlap": "never", "priority": 9, "input": { "region": 1 }, "catchUp": "all" },
        { "timezone": "UTC" },
        "0 6 * * *",
    ]);
    let problems = parse::check(&document(bad)).expect_err("problems");
    let observed: Vec<String> = problems.iter().map(ToString::to_string).collect();
    expect![[r#"
        /on/schedule/0/input: region is missing
        /on/schedule/1/cron: is given twice with this time zone
        /on/schedule/2/catchUp: unknown field catchUp, did you mean catch_up?
        /on/schedule/2/priority: must be a whole number from 1 to 5
        /on/schedule/2/overlap: must be one of skip, buffer_one, allow
        /on/schedule/2/cron: ticks too often: ticks must be at least 10 seconds apart
        /on/schedule/2/input/region: must be text, not a number
        /on/schedule/3: cron is missing
        /on/schedule/4: must be an object, not text"#]]
    .assert_eq(&observed.join("\n"));
    assert!(parse::check(&document(json!({ "cron": "0 6 * * *" }))).is_err(), "a list");
    let many: Vec<Value> = (0..=MAX_IN_DOCUMENT).map(|n| json!({ "cron": format!("{n} * * * *") })).collect();
    assert!(parse::check(&document(json!(many))).is_err(), "too many");
}

proptest! {
    /// Catching up looks back, and going on looks ahead: both must see the same ticks, clock changes included.
    #[test]
    fn ticks_are_the_same_forwards_and_backwards(
        minute in prop_oneof![Just("*/30".to_owned()), Just("5,35".to_owned()), (0..60).prop_map(|n: i32| n.to_string())],
        hour in prop_oneof![Just("*".to_owned()), Just("*/2".to_owned()), Just("1-3".to_owned()), (0..24).prop_map(|n: i32| n.to_string())],
        zone in prop_oneof![
            Just("Europe/Berlin"), Just("America/New_York"), Just("Australia/Lord_Howe"), Just("Africa/Casablanca"),
            Just("Pacific/Apia"), Just("America/Sao_Paulo"), Just("UTC"),
        ],
        day in 0..3650_i64, second in 0..86_400_i64,
    ) {
        let calendar = calendar(&format!("{minute} {hour} * * *"), zone);
        let from = Timestamp::from_second(1_262_304_000 + day * 86_400 + second).expect("a time");
        let ticks = calendar.next(from, 60);
        prop_assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert_eq!(backwards(&calendar, from, ticks.last().copied()), ticks);
    }

    #[test]
    fn no_text_is_a_panic_or_takes_long(text in "[0-9*,/#LWMONJAN?+@ -]{0,40}") {
        let _ = refusal(&text, "America/New_York");
    }
}
