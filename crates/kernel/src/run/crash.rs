//! When a run that outlives its processes is put alone, and when it is given up.
//!
//! Invariants
//! - Only a death counts: a slow or unreachable holder, or an open breaker, never does.
//! - Only deaths in a row without a new fact count; progress starts the count again.
//! - From the third on a run is resumed alone, so that the innocent beside it are not counted with
//!   it; from then on only deaths while alone count. Ten end it.
//! - A run is alone from the moment its turn comes, not while it waits for it: until then whoever has the
//!   turn may be what kills the process.
//!
//! Not here: who is dead (`store::process`), carrying the verdict out (`server::run::resume`).

/// What is kept of a run's deaths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deaths {
    pub count: i32,
    /// It had its turn to run alone; noted when that came.
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

/// How many deaths there are with one more, and what follows. Under its next holder it has not had its turn.
pub fn after_death(before: Deaths, progressed: bool) -> (i32, Verdict) {
    let count = match (progressed, before.count, before.alone) {
        (true, _, _) => 1,
        (false, count, false) if count >= ALONE_FROM => count,
        (false, count, _) => count + 1,
    };
    let verdict = match count {
        GIVE_UP_AT.. => Verdict::GiveUp,
        ALONE_FROM.. => Verdict::ResumeAlone,
        _ => Verdict::Resume,
    };
    (count, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_deaths_without_progress_end_it_and_progress_forgives() {
        use Verdict::*;
        let mut deaths = Deaths::default();
        let mut told = Vec::new();
        for _ in 0..10 {
            let (count, verdict) = after_death(deaths, false);
            told.push(verdict);
            deaths = Deaths { count, alone: verdict == ResumeAlone };
        }
        let mut expected = vec![Resume, Resume];
        expected.extend([ResumeAlone; 7]);
        expected.push(GiveUp);
        assert_eq!(told, expected);
        assert_eq!(after_death(deaths, true), (1, Resume));
    }

    #[test]
    fn a_death_that_was_not_alone_is_not_held_against_a_suspect() {
        let suspect = Deaths { count: 5, alone: false };
        assert_eq!(after_death(suspect, false), (5, Verdict::ResumeAlone));
        assert_eq!(after_death(Deaths { alone: true, ..suspect }, false), (6, Verdict::ResumeAlone), "its own is");
    }
}
