//! What a node asks of the world outside: its life, and when a task is given up.
//!
//!     OPEN ─claim▶ CLAIMED ─lose▶ OPEN      OPEN, CLAIMED ─answer▶ ANSWERED ─see▶ TAKEN
//!     OPEN, CLAIMED ─expire▶ EXPIRED        OPEN, CLAIMED ─close▶ CLOSED
//!     ANSWERED, TAKEN, EXPIRED ─ask again, for a later attempt▶ OPEN
//!
//! Invariants
//! - One answer an ask: what was answered, has expired or is closed takes none.
//! - A worker that dies costs a task nothing but time; too many in a row fail the attempt.
//!
//! Not here: the rows and their fences (`store::ask`), what is asked (`kind`).

use crate::failure::{Class, Failure};

/// So many workers in a row may lose one task; the last of them fails its attempt.
pub const MOST_LOST: i32 = 10;

/// How an ask stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Open,
    /// A worker has it.
    Claimed,
    /// The run does not know yet.
    Answered,
    Taken,
    /// Its time was up first.
    Expired,
    /// Its execution ended first.
    Closed,
}

/// What may happen to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Claim,
    Lose,
    Answer,
    See,
    Expire,
    Close,
    AskAgain,
}

impl Step {
    pub const ALL: [Step; 7] =
        [Step::Claim, Step::Lose, Step::Answer, Step::See, Step::Expire, Step::Close, Step::AskAgain];
}

impl Status {
    pub const ALL: [Status; 6] =
        [Status::Open, Status::Claimed, Status::Answered, Status::Taken, Status::Expired, Status::Closed];

    /// The name as stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Status::Open => "OPEN",
            Status::Claimed => "CLAIMED",
            Status::Answered => "ANSWERED",
            Status::Taken => "TAKEN",
            Status::Expired => "EXPIRED",
            Status::Closed => "CLOSED",
        }
    }

    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == text)
    }

    /// May it still be answered?
    pub fn is_open(self) -> bool {
        self.after(Step::Answer).is_some()
    }

    /// The whole life of an ask. What is not listed is illegal.
    pub fn after(self, step: Step) -> Option<Status> {
        use Status::{Answered, Claimed, Closed, Expired, Open, Taken};
        Some(match (self, step) {
            (Open, Step::Claim) => Claimed,
            (Claimed, Step::Lose) => Open,
            (Open | Claimed, Step::Answer) => Answered,
            (Answered, Step::See) => Taken,
            (Open | Claimed, Step::Expire) => Expired,
            (Open | Claimed, Step::Close) => Closed,
            (Answered | Taken | Expired, Step::AskAgain) => Open,
            _ => return None,
        })
    }
}

/// Why an attempt fails whose workers were all lost.
pub fn given_up() -> Failure {
    let told = format!("{MOST_LOST} workers in a row claimed this task and were not heard of in time");
    Failure::new(Class::ExecutionError, told)
}

/// The failure that a worker tells.
pub fn failed(message: &str, retryable: bool) -> Failure {
    Failure::new(if retryable { Class::ExecutionError } else { Class::ValidationError }, message)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn every_legal_step_of_an_ask() {
        let legal = |(from, step): (Status, Step)| {
            from.after(step).map(|to| format!("{} --{step:?}--> {}\n", from.name(), to.name()))
        };
        let pairs = Status::ALL.into_iter().flat_map(|from| Step::ALL.map(|step| (from, step)));
        let listed: String = pairs.filter_map(legal).collect();
        expect![[r#"
            OPEN --Claim--> CLAIMED
            OPEN --Answer--> ANSWERED
            OPEN --Expire--> EXPIRED
            OPEN --Close--> CLOSED
            CLAIMED --Lose--> OPEN
            CLAIMED --Answer--> ANSWERED
            CLAIMED --Expire--> EXPIRED
            CLAIMED --Close--> CLOSED
            ANSWERED --See--> TAKEN
            ANSWERED --AskAgain--> OPEN
            TAKEN --AskAgain--> OPEN
            EXPIRED --AskAgain--> OPEN
        "#]]
        .assert_eq(&listed);
        assert!(Status::ALL.into_iter().all(|status| Status::parse(status.name()) == Some(status)));
    }

    #[test]
    fn what_a_worker_calls_final_is_not_tried_again() {
        assert!(failed("later", true).is_retryable() && !failed("never", false).is_retryable());
        assert!(given_up().is_retryable(), "another attempt may find better workers");
    }
}
