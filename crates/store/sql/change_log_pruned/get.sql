-- Up to which transaction the log was pruned, and the lowest id of a transaction that is still open.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon,
       (SELECT state.pruned_xid FROM forebay.change_log_pruned state LIMIT 1)::text AS pruned_xid
