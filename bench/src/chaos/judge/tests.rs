//! Tests of the judge: each promise broken once, and a control that breaks none.

use super::*;

const WORKSPACE: Uuid = Uuid::from_u128(1);
const DEFINITION: Uuid = Uuid::from_u128(2);

fn item(n: u128) -> Uuid {
    Uuid::from_u128(100 + n)
}

fn limited_item(n: u128) -> LimitedItem {
    LimitedItem { item: item(n), workspace: WORKSPACE, definition: DEFINITION, key: Some("k".to_owned()) }
}

fn hit(execution: Uuid, begin: i64, end: i64) -> ReceivedRequest {
    let node = "a".to_owned();
    ReceivedRequest { execution, workspace: WORKSPACE, n: 7, node, iteration: 0, begin, end: Some(end), nth: 0 }
}

/// `3 taken 1`: at 3 item 1 takes a slot. `hit 4-6 1`: a request of item 1 from 4 to 6.
fn check(limit: i32, story: &[&str], expected: &[(&str, usize)]) {
    let (mut log, mut deliveries, mut pauses) = (Vec::new(), Vec::new(), Vec::new());
    let workspace =
        |limit| SlotChange::Workspace { id: WORKSPACE, tier: "FREE".to_owned(), limit: Some(limit), closed: false };
    log.push(Entry {
        at: 0,
        what: SlotChange::Definition { id: DEFINITION, concurrency: Some(2), key_concurrency: 2 },
    });
    log.push(Entry { at: 0, what: workspace(limit) });
    for line in story {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<i64>().expect("a number");
        let range = |word: &str| word.split_once('-').map(|(a, b)| (number(a), number(b))).expect("a range");
        match words.as_slice() {
            ["hit", at, n] => {
                let (begin, end) = range(at);
                deliveries.push(hit(item(n.parse().expect("a number")), begin, end));
            }
            ["pause", at] => {
                let (from, to) = range(at);
                pauses.push(Pause { name: "p".to_owned(), from, to: Some(to) });
            }
            [at, what, n] => {
                let id = n.parse().expect("a number");
                let execution = item(id);
                let what = match *what {
                    "taken" => SlotChange::Taken(limited_item(id)),
                    "freed" => SlotChange::Freed(limited_item(id)),
                    "begun" => SlotChange::Begun { execution, owner: Some(Uuid::from_u128(50)) },
                    "owned" => SlotChange::Owned { execution, owner: Some(Uuid::from_u128(51)) },
                    "attempt" => SlotChange::Attempt { execution },
                    _ => workspace(i32::try_from(id).expect("a limit")),
                };
                log.push(Entry { at: number(at), what });
            }
            _ => panic!("{line}"),
        }
    }
    let processes = HashMap::from([(Uuid::from_u128(50), "p".to_owned()), (Uuid::from_u128(51), "q".to_owned())]);
    let evidence = SlotEvidence { log: &log, deliveries: &deliveries, pauses: &pauses, processes: &processes };
    let verdict = judge(&evidence);
    let found = [
        ("workspace", verdict.over_workspace),
        ("definition", verdict.over_definition),
        ("key", verdict.over_key),
        ("seen", verdict.over_seen),
        ("outside", verdict.outside_slot),
        ("zombie", verdict.zombie_sends),
        ("begun", verdict.begun_twice),
        ("number", verdict.number_twice),
        ("attempt", verdict.attempts),
    ];
    let found: Vec<(&str, usize)> = found.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(found, expected, "{story:?}");
}

#[test]
fn a_slot_used_again_the_moment_it_is_freed_breaks_nothing() {
    check(1, &["1 taken 1", "hit 2-3 1", "3 freed 1", "3 taken 2", "4 freed 2"], &[]);
    check(2, &["1 taken 1", "1 taken 2", "2 limit 0", "3 freed 1", "3 freed 2"], &[]);
}

#[test]
fn a_slot_over_any_limit_is_found() {
    check(1, &["1 taken 1", "1 taken 2"], &[("workspace", 1)]);
    check(3, &["1 taken 1", "1 taken 2", "2 taken 3"], &[("definition", 1), ("key", 1)]);
    check(2, &["1 taken 1", "2 limit 1", "3 taken 2"], &[("workspace", 1)]);
}

#[test]
fn a_request_in_flight_without_a_slot_is_found() {
    check(1, &["1 taken 1", "hit 2-5 1", "4 freed 1"], &[("outside", 1)]);
    check(1, &["1 taken 1", "2 freed 1", "hit 3-5 1"], &[("outside", 1)]);
}

#[test]
fn a_writer_that_waited_between_its_number_and_its_time_hides_nobodys_slot() {
    check(2, &["9 taken 1", "1 taken 2", "hit 2-3 2", "4 freed 2", "12 freed 1"], &[]);
    check(2, &["9 taken 1", "1 taken 2", "hit 2-5 2", "4 freed 2"], &[("outside", 1)]);
}

#[test]
fn what_a_paused_process_had_sent_is_counted_apart() {
    let story = ["1 taken 1", "1 begun 1", "pause 2-9", "6 owned 1", "7 freed 1", "hit 9-10 1"];
    check(1, &story, &[("zombie", 1)]);
    let not_lost = ["1 taken 1", "1 begun 1", "pause 2-4", "7 freed 1", "hit 9-10 1"];
    check(1, &not_lost, &[("outside", 1)]);
}

#[test]
fn a_second_beginning_and_a_second_id_are_found() {
    check(1, &["1 taken 1", "1 begun 1", "2 begun 1"], &[("begun", 1)]);
    check(2, &["1 taken 1", "1 taken 2", "hit 2-3 1", "hit 2-3 2"], &[("number", 1)]);
}

#[test]
fn every_attempt_is_counted() {
    check(1, &["1 taken 1", "2 attempt 1", "2 freed 1", "3 taken 1", "4 attempt 1"], &[("attempt", 2)]);
}
