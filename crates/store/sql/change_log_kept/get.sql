-- How far the log was pruned, and the oldest transaction that may still write.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon,
       (SELECT kept.gone FROM forebay.change_log_kept kept LIMIT 1)::text AS gone
