-- How far the log was pruned, and the oldest transaction that may still write.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon, (SELECT k.gone FROM forebay.change_log_kept k LIMIT 1)::text AS gone
