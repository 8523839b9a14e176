-- Deletes entries of ended transactions that are older than $1 seconds, oldest first, at most $2. The same statement
-- records up to which transaction the log was pruned, so that no reader mistakes a gap for "no changes". Repeatable.
WITH pruned AS (
    DELETE FROM forebay.change_log entry
     WHERE (entry.xid, entry.seq) IN (
           SELECT oldest.xid, oldest.seq FROM forebay.change_log oldest
            WHERE oldest.xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY oldest.xid, oldest.seq LIMIT $2)
       AND entry.at < now() - make_interval(secs => $1)
    RETURNING entry.xid),
recorded AS (
    UPDATE forebay.change_log_pruned state
       SET pruned_xid = greatest(state.pruned_xid, last.xid)
      FROM (SELECT pruned.xid FROM pruned ORDER BY pruned.xid DESC LIMIT 1) last)
SELECT count(*) FROM pruned
