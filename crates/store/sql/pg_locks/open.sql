-- Is one of these transactions still open? Each holds a lock on its own virtual id until it ends.
SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'virtualxid' AND virtualxid = ANY ($1::text[]) AND granted)
