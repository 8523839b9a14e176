//! What Temporal's answer to a start means for the queue item.
//!
//! Invariants
//! - A start may have happened unless Temporal says that it did not: what is not known to be an answer is ambiguous.
//! - Only what is wrong with this very item is a refusal, and so an attempt.
//!
//! Not here: what follows from it (`kernel::queue`), sending (`client`).

use kernel::queue::Answer;
use temporalio_client::tonic::{Code, Status};

/// Reads the answer: whether it started now, or why not.
pub(crate) fn answer(result: Result<bool, &Status>) -> Answer {
    let status = match result {
        Ok(true) => return Answer::Started,
        Ok(false) => return Answer::AlreadyThere,
        Err(status) => status,
    };
    let reason = format!("Temporal answered {:?}: {}", status.code(), status.message());
    match status.code() {
        // It ran before, and is over.
        Code::AlreadyExists => Answer::AlreadyThere,
        Code::InvalidArgument => Answer::Refused(reason),
        // The request is too large: so will be the next.
        Code::ResourceExhausted if status.message().contains("larger than max") => Answer::Refused(reason),
        Code::Unavailable
        | Code::ResourceExhausted
        | Code::Unauthenticated
        | Code::PermissionDenied
        // The namespace: it is not there, or not active in this cluster.
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::Unimplemented => Answer::Unavailable(reason),
        // Our own timeout comes back as Cancelled, a connection that broke as Unknown or Internal.
        _ => Answer::Ambiguous(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_means_something_and_only_the_items_own_fault_is_a_refusal() {
        let table = [
            (Code::AlreadyExists, "", "there"),
            (Code::InvalidArgument, "", "refused"),
            (Code::FailedPrecondition, "Namespace x is active in cluster b.", "unavailable"),
            (Code::ResourceExhausted, "grpc: received message larger than max (1 vs. 2)", "refused"),
            (Code::ResourceExhausted, "namespace rate limit exceeded", "unavailable"),
            (Code::Unavailable, "", "unavailable"),
            (Code::Unauthenticated, "", "unavailable"),
            (Code::PermissionDenied, "", "unavailable"),
            (Code::NotFound, "Namespace x is not found.", "unavailable"),
            (Code::Unimplemented, "", "unavailable"),
            (Code::Cancelled, "Timeout expired", "ambiguous"),
            (Code::DeadlineExceeded, "", "ambiguous"),
            (Code::Unknown, "transport error", "ambiguous"),
            (Code::Internal, "", "ambiguous"),
            (Code::Aborted, "", "ambiguous"),
            (Code::OutOfRange, "", "ambiguous"),
            (Code::DataLoss, "", "ambiguous"),
            (Code::Ok, "", "ambiguous"),
        ];
        for (code, message, expected) in table {
            let seen = match answer(Err(&Status::new(code, message))) {
                Answer::Started => "started",
                Answer::AlreadyThere => "there",
                Answer::Refused(_) => "refused",
                Answer::Unavailable(_) => "unavailable",
                Answer::Ambiguous(_) => "ambiguous",
            };
            assert_eq!(seen, expected, "{code:?} {message}");
        }
        assert_eq!((answer(Ok(true)), answer(Ok(false))), (Answer::Started, Answer::AlreadyThere));
    }
}
