-- Events whose stored error is transient, for the loop that folds them again: the one that was tried longest ago comes first.
CREATE INDEX domain_events_to_fold ON domain_events (processing_failed_at)
    WHERE left(processing_error, 2) = ANY (ARRAY['08', '25', '40', '53', '55', '57', '58']);
