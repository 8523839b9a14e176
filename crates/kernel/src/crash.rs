//! When a run that outlives its processes is put alone, and when it is given up.
//!
//! Invariants
//! - Only a death counts: a slow or unreachable holder, or an open breaker, never does.
//! - Only deaths in a row without a new fact count; progress starts the count again.
//! - From the third on a run is resumed alone, so that the innocent beside it are not counted with
//!   it; from then on only deaths while alone count. Ten end it.
//!
//! Not here: who is dead (`store::process`), carrying the verdict out (`server::orphans`).

/// What is kept of a run's deaths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deaths {
    pub count: i32,
    /// It was resumed alone last time.
    pub alone: bool,
}

/// How to go on with a run whose holder died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Resume,
    ResumeAlone,
    GiveUp,
}

const ALONE_FROM: i32 = 3;
const GIVE_UP_AT: i32 = 10;

/// Counts one more death.
pub fn after_death(before: Deaths, progressed: bool) -> (Deaths, Verdict) {
    let count = match (progressed, before.count, before.alone) {
        (true, _, _) => 1,
        (false, count, false) if count >= ALONE_FROM => count,
        (false, count, _) => count + 1,
    };
    if count >= GIVE_UP_AT {
        (Deaths { count, alone: before.alone }, Verdict::GiveUp)
    } else if count >= ALONE_FROM {
        (Deaths { count, alone: true }, Verdict::ResumeAlone)
    } else {
        (Deaths { count, alone: false }, Verdict::Resume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_deaths_without_progress_end_it_and_progress_forgives() {
        let mut deaths = Deaths::default();
        let mut told = Vec::new();
        for _ in 0..10 {
            let (after, verdict) = after_death(deaths, false);
            told.push(verdict);
            deaths = after;
        }
        use Verdict::*;
        let mut expected = vec![Resume, Resume];
        expected.extend([ResumeAlone; 7]);
        expected.push(GiveUp);
        assert_eq!(told, expected);
        assert_eq!(after_death(deaths, true), (Deaths { count: 1, alone: false }, Resume));
    }

    #[test]
    fn a_death_that_was_not_alone_is_not_held_against_a_suspect() {
        let suspect = Deaths { count: 5, alone: false };
        assert_eq!(after_death(suspect, false), (Deaths { count: 5, alone: true }, Verdict::ResumeAlone));
    }
}
