-- Says from when on the log is whole, if that is not known: after the migration, and after a crash emptied it. What is open
-- now began after either.
INSERT INTO change_log_kept (gone)
SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1)::text::xid8
    ON CONFLICT DO NOTHING
