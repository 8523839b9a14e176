//! Tries each step of every lifecycle in each status, and compares the legal steps with a snapshot.
//!
//! Invariants
//! - The snapshots and `docs/reference/lifecycle.md` are made from the kernel alone. `UPDATE_EXPECT=1` writes both.
//!
//! Not here: when a step happens (`queue::after_start`, `run`).

use std::fmt::{Debug, Write as _};

use expect_test::{Expect, expect, expect_file};
use kernel::run::node;
use kernel::{execution, job, queue, wait, webhook};

use crate::page::wrap;

/// One legal step: from, step, to.
type Legal = (&'static str, String, &'static str);

fn walk<Status: Copy, Step: Copy + Debug>(
    statuses: &[Status],
    steps: &[Step],
    name: fn(Status) -> &'static str,
    after: impl Fn(Status, Step) -> Option<Status>,
) -> Vec<Legal> {
    let mut legal = Vec::new();
    for status in statuses {
        for step in steps {
            if let Some(next) = after(*status, *step) {
                legal.push((name(*status), format!("{step:?}").to_lowercase(), name(next)));
            }
        }
    }
    legal
}

fn queue_items() -> Vec<Legal> {
    walk(&queue::Status::ALL, &queue::Step::ALL, queue::Status::name, queue::Status::after)
}

fn executions() -> Vec<Legal> {
    walk(&execution::Status::ALL, &execution::Step::ALL, execution::Status::name, execution::Status::after)
}

fn nodes() -> Vec<Legal> {
    walk(&node::Status::ALL, &node::Step::ALL, node::Status::name, node::Status::after)
}

fn jobs() -> Vec<Legal> {
    walk(&job::Status::ALL, &job::Step::ALL, job::Status::name, job::Status::after)
}

fn deliveries() -> Vec<Legal> {
    walk(&webhook::Status::ALL, &webhook::Step::ALL, webhook::Status::name, webhook::Status::after)
}

fn waits() -> Vec<Legal> {
    walk(&wait::Status::ALL, &wait::Step::ALL, wait::Status::name, wait::Status::after)
}

fn check(walk: &[Legal], expected: Expect) {
    let line = |(from, step, to): &Legal| format!("{from} {step} {to}\n");
    expected.assert_eq(&walk.iter().map(line).collect::<String>());
}

#[test]
fn the_life_of_a_queue_item() {
    check(
        &queue_items(),
        expect![[r#"
        PENDING claim CLAIMED
        PENDING complete GONE
        PENDING cancel GONE
        PENDING fail FAILED
        CLAIMED takeover CLAIMED
        CLAIMED dispatch DISPATCHED
        CLAIMED requeue PENDING
        CLAIMED complete GONE
        CLAIMED cancel GONE
        CLAIMED fail FAILED
        DISPATCHED complete GONE
        DISPATCHED cancel GONE
        DISPATCHED fail FAILED
        FAILED dismiss GONE
        FAILED retire GONE
    "#]],
    );
}

#[test]
fn the_life_of_an_execution() {
    check(
        &executions(),
        expect![[r#"
        PENDING begin RUNNING
        PENDING fail FAILED
        PENDING cancel CANCELED
        PENDING timeout TIMED_OUT
        RUNNING complete COMPLETED
        RUNNING fail FAILED
        RUNNING cancel CANCELED
        RUNNING timeout TIMED_OUT
    "#]],
    );
}

#[test]
fn the_life_of_a_node() {
    check(
        &nodes(),
        expect![[r#"
            PENDING perform RUNNING
            PENDING succeed COMPLETED
            PENDING fail FAILED
            PENDING skip SKIPPED
            PENDING cancel CANCELED
            RUNNING perform RUNNING
            RUNNING wait RETRYING
            RUNNING succeed COMPLETED
            RUNNING fail FAILED
            RUNNING skip SKIPPED
            RUNNING cancel CANCELED
            RUNNING lose UNKNOWN
            RETRYING perform RUNNING
            RETRYING fail FAILED
            RETRYING cancel CANCELED
        "#]],
    );
}

#[test]
fn the_life_of_a_job() {
    check(
        &jobs(),
        expect![[r#"
            pending claim processing
            processing complete completed
            processing fail failed
            processing recover pending
            failed retry pending
        "#]],
    );
}

#[test]
fn the_life_of_a_delivery() {
    check(
        &deliveries(),
        expect![[r#"
        PENDING claim SENDING
        PENDING retry PENDING
        SENDING claim SENDING
        SENDING deliver DELIVERED
        SENDING requeue PENDING
        SENDING fail FAILED
        DELIVERED retry PENDING
        FAILED retry PENDING
    "#]],
    );
}

#[test]
fn the_life_of_a_wait() {
    check(
        &waits(),
        expect![[r#"
            OPEN claim CLAIMED
            OPEN answer ANSWERED
            OPEN expire EXPIRED
            OPEN close CLOSED
            CLAIMED requeue OPEN
            CLAIMED answer ANSWERED
            CLAIMED expire EXPIRED
            CLAIMED close CLOSED
            ANSWERED receive RECEIVED
            ANSWERED reopen OPEN
            RECEIVED reopen OPEN
            EXPIRED reopen OPEN
        "#]],
    );
    for status in wait::Status::ALL {
        assert_eq!(wait::Status::parse(status.name()), Some(status));
    }
}

#[test]
fn what_is_final_has_no_way_out_and_every_name_is_read_back() {
    for status in execution::Status::ALL {
        let ways_out = executions().iter().filter(|(from, ..)| *from == status.name()).count();
        assert_eq!(ways_out == 0, status.is_terminal(), "{status:?}");
        assert_eq!(execution::Status::parse(status.name()), Some(status));
    }
    for status in node::Status::ALL {
        let ways_out = nodes().iter().filter(|(from, ..)| *from == status.name()).count();
        assert_eq!(ways_out == 0, status.is_settled(), "{status:?}");
        assert_eq!(node::Status::parse(status.name()), Some(status));
    }
    for status in queue::Status::ALL {
        assert_eq!(queue::Status::parse(status.name()), Some(status));
    }
}

#[test]
fn a_slot_is_taken_by_a_claim_and_held_until_the_item_leaves() {
    let slot = |name: &str| queue::Status::parse(name).is_some_and(queue::Status::holds_slot);
    for (from, step, to) in queue_items() {
        match (slot(from), slot(to)) {
            (false, true) => assert_eq!(step, "claim"),
            (true, false) => assert!(["requeue", "complete", "cancel", "fail"].contains(&step.as_str()), "{step}"),
            _ => {}
        }
    }
}

#[test]
fn the_page_of_lifecycles_is_current() {
    let mut page = String::from(HEAD);
    let parts = [
        ("Queue item", QUEUE_ITEM, queue_items()),
        ("Execution", EXECUTION, executions()),
        ("Node", NODE, nodes()),
        ("Job", JOB, jobs()),
        ("Delivery", DELIVERY, deliveries()),
        ("Wait", WAIT, waits()),
    ];
    for (title, about, walk) in parts {
        write!(page, "\n## {title}\n\n{about}\n\n{}", diagram(&walk)).expect("a string takes all");
    }
    write!(page, "\n## May this run begin?\n\n{BEGIN}\n\n{}", begin_table()).expect("a string takes all");
    expect_file!["../../../../docs/reference/lifecycle.md"].assert_eq(&wrap(&page));
}

/// A drawing in which several steps between the same two statuses share an arrow.
fn diagram(walk: &[Legal]) -> String {
    let mut drawn = String::from("```mermaid\nstateDiagram-v2\n");
    let mut arrows: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for (from, step, to) in walk {
        match arrows.iter_mut().find(|(a, b, _)| (a, b) == (from, to)) {
            Some((.., steps)) => steps.push(step),
            None => arrows.push((from, to, vec![step])),
        }
    }
    let first = arrows.first().map_or("", |(from, ..)| from);
    writeln!(drawn, "    [*] --> {first}").expect("a string takes all");
    for (from, to, steps) in &arrows {
        writeln!(drawn, "    {from} --> {to}: {}", steps.join(", ")).expect("a string takes all");
    }
    let mut ends: Vec<&str> = arrows.iter().map(|(_, to, _)| *to).collect();
    ends.retain(|to| arrows.iter().all(|(from, ..)| from != to));
    ends.sort_unstable();
    ends.dedup();
    for end in ends {
        writeln!(drawn, "    {end} --> [*]").expect("a string takes all");
    }
    drawn + "```\n"
}

fn begin_table() -> String {
    const GUARDS: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];
    let mut table = String::from("| execution | item holds a slot | by this run | answer |\n|---|---|---|---|\n");
    let word = |yes: bool| if yes { "yes" } else { "no" };
    for status in execution::Status::ALL {
        let answers = GUARDS.map(|(slot, same)| execution::begin(status, slot, same));
        if answers.iter().all(|answer| *answer == answers[0]) {
            writeln!(table, "| {} | any | any | {:?} |", status.name(), answers[0]).expect("a string takes all");
            continue;
        }
        for ((slot, same), answer) in GUARDS.into_iter().zip(answers) {
            let cells = [status.name(), word(slot), word(same)].join(" | ");
            writeln!(table, "| {cells} | {answer:?} |").expect("a string takes all");
        }
    }
    table
}

const HEAD: &str = "\
# Lifecycles

The test `lifecycle` (`crates/kernel/tests/it/lifecycle.rs`) generates this page from the kernel; do not edit it by
hand. `UPDATE_EXPECT=1` writes it again. A step that is not drawn is refused: its write changes no row, and the caller
reports a conflict. For nodes, the database refuses only changes of a settled node; the other steps are up to the
kernel.
";

const QUEUE_ITEM: &str = "\
The request to run an execution. While it is CLAIMED or DISPATCHED, it *is* one of its workspace's slots. GONE means that
the row is deleted; the execution keeps the outcome. FAILED holds no slot and stays until a person dismisses it or
retention deletes it.";

const WAIT: &str = "\
A node that waits for the outside world: for an answer or event (WAIT_FOR_EVENT), or for a worker (TASK). An answer that
arrives before the node begins is stored as ANSWERED. RECEIVED means that the run has the answer. A later attempt at the
node opens the wait again.";

const DELIVERY: &str = "\
One message of a webhook: the end of one execution, for one receiver. It is retried for a day. If a sender dies, the
delivery stays SENDING until its lease ends; then another process claims it. Repeated messages have the same id.";

const EXECUTION: &str = "The record of a request. The first end counts; a terminal status is final.";

const NODE: &str = "\
One node of one execution. After a crash, a RUNNING node is performed again under the same attempt. A node that may be
performed at most once ends UNKNOWN instead, because its result was lost.";

const JOB: &str = "\
A row of `workflow_queue_projection`, created by an event with a binding. A job with fewer than three failures is retried.
If its worker dies, the job is pending again, without a failure. [events.md](events.md) describes the workers.";

const BEGIN: &str = "\
Before a run performs its first node, it asks whether it may begin. `Granted`: it may. `Ended`: the execution has ended,
and the run stops. `NotYet`: the item has no slot yet, and the run asks again later. The answer depends only on the status of
the execution and on the slot of its item. It does not depend on a claim, because another process may have taken over the
claim that started the run.";
