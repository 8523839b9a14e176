//! Crash loops: decides when a run whose owner processes keep dying is resumed alone, and when it is ended as FAILED.
//!
//! Invariants
//! - Only the death of the owner process counts. A slow or unreachable owner does not count, nor does an open circuit
//!   breaker.
//! - Only consecutive deaths count between which the run recorded no new fact. After progress the count starts at 1.
//! - From the third death on, a run is resumed alone: of all runs with so many deaths, its process performs only this
//!   one at a time. From then on only deaths while the run is alone count, so that a death is counted only for the run
//!   that probably caused it.
//! - The tenth death ends the run.
//! - A run is alone from the moment its turn comes. Deaths before its turn do not count, because the run whose turn it
//!   is may be the one that kills the process.
//!
//! Not here: which processes are dead (`store::process`), carrying out the decision (`server::run::resume`).

/// How often a run's owner died without progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deaths {
    pub count: i32,
    /// The run's turn to run alone had come. The engine stores this before it performs a node of the run.
    pub alone: bool,
}

/// What to do with a run whose owner died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterDeath {
    Resume,
    ResumeAlone,
    GiveUp,
}

const ALONE_FROM: i32 = 3;
const GIVE_UP_AT: i32 = 10;

/// Counts one more death of the owner, and decides what happens to the run. The caller stores `alone` as false with the
/// new count, because under its next owner the run has to wait for its turn again.
pub fn after_death(before: Deaths, progressed: bool) -> (i32, AfterDeath) {
    let count = match (progressed, before.count, before.alone) {
        (true, _, _) => 1,
        (false, count, false) if count >= ALONE_FROM => count,
        (false, count, _) => count + 1,
    };
    let next = match count {
        GIVE_UP_AT.. => AfterDeath::GiveUp,
        ALONE_FROM.. => AfterDeath::ResumeAlone,
        _ => AfterDeath::Resume,
    };
    (count, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_deaths_without_progress_end_a_run_and_progress_resets_the_count() {
        use AfterDeath::*;
        let mut deaths = Deaths::default();
        let mut decisions = Vec::new();
        for _ in 0..10 {
            let (count, next) = after_death(deaths, false);
            decisions.push(next);
            deaths = Deaths { count, alone: next == ResumeAlone };
        }
        let mut expected = vec![Resume, Resume];
        expected.extend([ResumeAlone; 7]);
        expected.push(GiveUp);
        assert_eq!(decisions, expected);
        assert_eq!(after_death(deaths, true), (1, Resume));
    }

    #[test]
    fn a_death_while_not_alone_is_not_counted() {
        let isolated = Deaths { count: 5, alone: false };
        assert_eq!(after_death(isolated, false), (5, AfterDeath::ResumeAlone));
        assert_eq!(
            after_death(Deaths { alone: true, ..isolated }, false),
            (6, AfterDeath::ResumeAlone),
            "a death while alone counts"
        );
    }
}
