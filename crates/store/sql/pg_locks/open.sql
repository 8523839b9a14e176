-- Is one of these transactions still open? Each holds a lock on its own name to its end.
SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'virtualxid' AND virtualxid = ANY ($1::text[]) AND granted)
