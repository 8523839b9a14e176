//! Every lifecycle, walked: each status meets each step, and what is legal is written down.
//!
//! Invariants
//! - The walk asks the kernel and nothing else; the snapshot here and `docs/lifecycle.md` are both
//!   its answer. `UPDATE_EXPECT=1` writes them anew.
//!
//! Not here: who takes a step when (`queue::decide`, `run`).

use std::fmt::{Debug, Write as _};

use expect_test::{Expect, expect, expect_file};
use kernel::run::node;
use kernel::{execution, job, queue, wait, webhook};

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
    let after = |from: queue::Status, step| from.after(step).ok();
    walk(&queue::Status::ALL, &queue::Step::ALL, queue::Status::name, after)
}

fn executions() -> Vec<Legal> {
    let after = |from: execution::Status, step| from.after(step).ok();
    walk(&execution::Status::ALL, &execution::Step::ALL, execution::Status::name, after)
}

fn nodes() -> Vec<Legal> {
    let after = |from: node::Status, step| from.after(step).ok();
    walk(&node::Status::ALL, &node::Step::ALL, node::Status::name, after)
}

fn jobs() -> Vec<Legal> {
    let after = |from: job::Status, step| from.after(step).ok();
    walk(&job::Status::ALL, &job::Step::ALL, job::Status::name, after)
}

fn deliveries() -> Vec<Legal> {
    let after = |from: webhook::Status, step| from.after(step).ok();
    walk(&webhook::Status::ALL, &webhook::Step::ALL, webhook::Status::name, after)
}

fn asks() -> Vec<Legal> {
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
        SENDING later PENDING
        SENDING fail FAILED
        DELIVERED retry PENDING
        FAILED retry PENDING
    "#]],
    );
}

#[test]
fn the_life_of_an_ask() {
    check(
        &asks(),
        expect![[r#"
            OPEN claim CLAIMED
            OPEN answer ANSWERED
            OPEN expire EXPIRED
            OPEN close CLOSED
            CLAIMED lose OPEN
            CLAIMED answer ANSWERED
            CLAIMED expire EXPIRED
            CLAIMED close CLOSED
            ANSWERED see TAKEN
            ANSWERED reopen OPEN
            TAKEN reopen OPEN
            EXPIRED reopen OPEN
        "#]],
    );
    for status in wait::Status::ALL {
        assert_eq!(wait::Status::parse(status.name()), Some(status));
    }
}

#[test]
fn an_illegal_step_says_what_was_tried() {
    let refused = queue::Status::Dispatched.after(queue::Step::Takeover).map_err(|illegal| illegal.to_string());
    assert_eq!(refused, Err("a Dispatched queue item cannot Takeover".to_owned()));
    let refused = execution::Status::Canceled.after(execution::Step::Complete).map_err(|illegal| illegal.to_string());
    assert_eq!(refused, Err("a Canceled execution cannot Complete".to_owned()));
    let refused = node::Status::Completed.after(node::Step::Perform).map_err(|illegal| illegal.to_string());
    assert_eq!(refused, Err("a Completed node cannot Perform".to_owned()));
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
fn the_page_about_lifecycles_is_what_the_kernel_says() {
    let mut page = String::from(HEAD);
    let parts = [
        ("Queue item", QUEUE_ITEM, queue_items()),
        ("Execution", EXECUTION, executions()),
        ("Node", NODE, nodes()),
        ("Job", JOB, jobs()),
        ("Delivery", DELIVERY, deliveries()),
        ("Ask", ASK, asks()),
    ];
    for (title, about, walk) in parts {
        write!(page, "\n## {title}\n\n{about}\n\n{}", diagram(&walk)).expect("a string takes all");
    }
    write!(page, "\n## May this run begin?\n\n{BEGIN}\n\n{}", begin_table()).expect("a string takes all");
    expect_file!["../../../../docs/lifecycle.md"].assert_eq(&page);
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

Drawn from the kernel by the test `lifecycle` (`crates/kernel/tests/it/lifecycle.rs`), which walks every pair of
status and step; do not edit by hand. `UPDATE_EXPECT=1` writes this page anew. What is not drawn is refused: a write
that would take such a step changes no row, and its caller reports that someone else decided.
";

const QUEUE_ITEM: &str = "\
The ticket of an execution. While it is CLAIMED or DISPATCHED it *is* one of its workspace's slots. GONE means that
the row is deleted; the execution tells how it went. FAILED holds no slot and stays until a person dismisses it or
retention retires it.";

const ASK: &str = "What a node asks of the world outside: a wait (WAIT_FOR_EVENT) or a task (TASK). An answer that comes before its node
has begun is ANSWERED from the start. TAKEN: the run knows. A later attempt of the node opens it anew.";
const DELIVERY: &str = "\
One message of a webhook: the end of one execution, told to one receiver. It is tried for a day. A sender that dies leaves
it SENDING until its time is up, then another claims it; the receiver knows it by its id.";

const EXECUTION: &str = "The request's record. Whoever ends it first decides; a terminal status is final.";

const NODE: &str = "\
One node within one execution. RUNNING may be performed again after a crash, under the same attempt. UNKNOWN ends a
node that may be performed at most once and whose result was lost.";

const JOB: &str = "\
A row of `workflow_queue_projection`, made by a bound event. Only a job that failed fewer than three times is tried again;
one whose worker died is pending again and has not failed. [events.md](events.md) says who works on it.";

const BEGIN: &str = "\
The first step of every engine run. Without `Granted` it performs no node: `Ended` closes it, `NotYet` makes it ask
again. The guard is the execution's status and the item's slot, not a claim: the run may have been started under a
claim that was taken over since.";
