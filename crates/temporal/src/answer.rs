//! Translates Temporal's answer to a start into what it means for the queue item.
//!
//! Invariants
//! - Unless Temporal's answer excludes it, the workflow may have been started. An unknown answer is ambiguous.
//! - An answer is a refusal, and counts as an attempt, only if the queue item itself is the cause.
//!
//! Not here: the consequences (`kernel::queue`), sending (`client`).

use kernel::queue::StartOutcome;
use temporalio_client::tonic::{Code, Status};

/// Translates an answer. `Ok(true)` means that the workflow was started now, `Ok(false)` that it was started before.
pub(crate) fn answer(result: Result<bool, &Status>) -> StartOutcome {
    let status = match result {
        Ok(true) => return StartOutcome::Started,
        Ok(false) => return StartOutcome::AlreadyStarted,
        Err(status) => status,
    };
    let reason = format!("Temporal answered {:?}: {}", status.code(), status.message());
    match status.code() {
        // The workflow ran before and has ended.
        Code::AlreadyExists => StartOutcome::AlreadyStarted,
        Code::InvalidArgument => StartOutcome::Refused(reason),
        // The request is too large, so every repeat would be refused too.
        Code::ResourceExhausted if status.message().contains("larger than max") => StartOutcome::Refused(reason),
        Code::Unavailable
        | Code::ResourceExhausted
        | Code::Unauthenticated
        | Code::PermissionDenied
        // The namespace does not exist, or is not active in this cluster.
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::Unimplemented => StartOutcome::Unavailable(reason),
        // Our own timeout arrives as Cancelled, a broken connection as Unknown or Internal.
        _ => StartOutcome::Ambiguous(reason),
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
                StartOutcome::Started => "started",
                StartOutcome::AlreadyStarted => "there",
                StartOutcome::Refused(_) => "refused",
                StartOutcome::Unavailable(_) => "unavailable",
                StartOutcome::Ambiguous(_) => "ambiguous",
            };
            assert_eq!(seen, expected, "{code:?} {message}");
        }
        assert_eq!((answer(Ok(true)), answer(Ok(false))), (StartOutcome::Started, StartOutcome::AlreadyStarted));
    }
}
