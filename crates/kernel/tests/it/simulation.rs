//! A simulation: several processes, two engines and one store, where everything can fail. Do the promises hold?
//!
//!     client, operator ──▶ store ◀── processes: dispatcher, loops, embedded engine
//!                            ▲             │ start
//!                            └── remote engine ──▶ receiver ◀── embedded engine
//!
//! Every actor takes single steps. A seed decides which actor is next, and which one crashes, pauses past its
//! lease, or loses a request or a reply. The store is a model: each of its operations is one committed
//! transaction. All decisions are the kernel's own. In the first phase everything may fail, and nothing unsafe
//! may happen. In the second phase nothing fails, and everything accepted must end. Then comes the audit.
//!
//! Invariants
//! - `SIM_SEED=n` runs one seed, `SIM_SEEDS=n` that many; a failure reports its seed and last steps.
//! - The simulation notices mistakes: each mutant breaks one rule of the model and must be caught.
//!
//! Not here: the real store under real races (`store`'s tests), whole graphs (`run`), trees that are deeper than one
//! child (`orchestration::tree`).

mod audit;
mod judge;
mod machine;
mod mutant;
mod process;
pub(crate) mod random;
mod receiver;
mod remote;
mod store;
mod world;

use std::collections::BTreeSet;

use expect_test::{Expect, expect};

use mutant::Mutant;

/// How many seeds are played unless the environment says otherwise.
const SEEDS: u64 = 5_000;
/// How many seeds a mutant may survive.
const PATIENCE: u64 = 10_000;

#[test]
fn the_promises_hold_whatever_fails() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        if let Some(broken) = world::play(seed, None, false).broken {
            let steps: Vec<String> = world::play(seed, None, true).steps.into();
            panic!("{broken}\n{}\nreplay with SIM_SEED={seed}", steps.join("\n"));
        }
    }
}

/// A simulation that never gets into trouble proves nothing.
#[test]
fn the_simulation_covers_every_rare_path() {
    let ways: BTreeSet<&str> = (0..2_000).flat_map(|seed| world::play(seed, None, false).seen).collect();
    let expected = expect![[r#"
        abort of a node that has settled
        activity behind its successor
        activity falls silent
        activity finds its node settled
        answer received
        begin after the end
        begin granted
        begin granted again
        begin without a slot
        child asked to stop
        child found
        child starts
        claim recalled
        crash loop
        deadly node
        end after the end
        end fenced out
        engine out of reach
        fact fenced out
        given up
        loop begins
        loop goes on
        number below the mark
        owner lets a forced run go
        owner of a forced run is dead
        parked
        refused in doubt
        reloads
        resumed alone
        start below the mark
        suspect waits to be alone
        takeover
        takes a run over
        wakes
        what an earlier owner made is found
        write of an item without its claim
    "#]];
    expected.assert_eq(&ways.into_iter().map(|way| format!("{way}\n")).collect::<String>());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(world::play(seed, None, true).steps, world::play(seed, None, true).steps);
    }
}

/// The mutant is caught, by the promise it breaks.
fn caught(mutant: Mutant, expected: Expect) {
    let broken = (0..PATIENCE).find_map(|seed| world::play(seed, Some(mutant), false).broken);
    let observed = broken.map_or("not caught".to_owned(), |broken| format!("{:?}", broken.promise));
    expected.assert_eq(&observed);
}

#[test]
fn a_slot_freed_on_an_ambiguous_start_is_noticed() {
    caught(Mutant::FreeSlotOnAmbiguousStart, expect!["P2Slots"]);
}

#[test]
fn unfenced_facts_are_noticed() {
    caught(Mutant::NoFence, expect!["P3Once"]);
}

#[test]
fn a_second_end_is_noticed() {
    caught(Mutant::CompletionTwice, expect!["P3Once"]);
}

#[test]
fn a_start_repeated_under_a_new_id_is_noticed() {
    caught(Mutant::NewIdOnRepeat, expect!["P3Once"]);
}

#[test]
fn a_takeover_that_requeues_is_noticed() {
    caught(Mutant::TakeoverRequeues, expect!["P2Slots"]);
}

#[test]
fn a_begin_that_checks_nothing_is_noticed() {
    caught(Mutant::BeginUnchecked, expect!["P2Slots"]);
}

#[test]
fn a_claim_without_the_lock_is_noticed() {
    caught(Mutant::ClaimWithoutLock, expect!["P2Slots"]);
}

#[test]
fn a_limit_changed_without_the_lock_is_noticed() {
    caught(Mutant::UnfencedLimitChange, expect!["P2Slots"]);
}

#[test]
fn a_mark_that_moves_without_the_lock_is_noticed() {
    caught(Mutant::MarkOutsideLock, expect!["P2Slots"]);
}

#[test]
fn a_mark_that_covers_its_own_claim_is_noticed() {
    caught(Mutant::MarkCoversOwn, expect!["P2Slots"]);
}

#[test]
fn a_number_that_is_kept_when_an_item_is_claimed_again_is_noticed() {
    caught(Mutant::NumberKept, expect!["P2Slots"]);
}

#[test]
fn a_mark_that_a_smaller_number_does_not_reset_is_noticed() {
    caught(Mutant::StaleMarkKept, expect!["P2Slots"]);
}

#[test]
fn a_mark_that_no_probe_lowers_is_noticed() {
    caught(Mutant::NoProbe, expect!["P1Kept"]);
}

#[test]
fn a_crash_counted_as_an_attempt_is_noticed() {
    caught(Mutant::CrashIsAnAttempt, expect!["P5NeverAttempts"]);
}

#[test]
fn claiming_the_oldest_first_is_noticed() {
    caught(Mutant::OldestFirst, expect!["P4Fair"]);
}

#[test]
fn a_forgotten_claim_is_noticed() {
    caught(Mutant::ClaimForgotten, expect!["P1Kept"]);
}

#[test]
fn a_cancel_that_resume_forgets_is_noticed() {
    caught(Mutant::StopForgotten, expect!["P3Once"]);
}

#[test]
fn a_repeated_event_that_is_applied_is_noticed() {
    caught(Mutant::EchoIsNews, expect!["P3Once"]);
}

#[test]
fn a_slot_freed_while_the_owner_still_runs_is_noticed() {
    caught(Mutant::ForcedEndAtOnce, expect!["P2Slots"]);
}

#[test]
fn a_crash_loop_that_counts_as_progress_is_noticed() {
    caught(Mutant::AnyFactIsProgress, expect!["P1Kept"]);
}

#[test]
fn a_refusal_that_is_always_doubted_is_noticed() {
    caught(Mutant::DoubtForEver, expect!["P1Kept"]);
}

#[test]
fn a_loop_that_forgets_its_items_is_noticed() {
    caught(Mutant::ItemsForgotten, expect!["P3Once"]);
}

#[test]
fn a_child_that_starts_over_is_noticed() {
    caught(Mutant::ChildAnew, expect!["P3Once"]);
}

#[test]
fn an_answer_that_parking_forgets_is_noticed() {
    caught(Mutant::WakeForgotten, expect!["P1Kept"]);
}

#[expect(clippy::disallowed_methods, reason = "whoever runs a test may say which seeds it plays")]
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("SIM_SEED and SIM_SEEDS are numbers"))
}
