-- Forgets what is older than $1 seconds and finished, at most $2 entries, oldest first; and says up to where in the
-- same statement, so that no reader takes a gap for silence. Run twice it finds less to do.
WITH pruned AS (
    DELETE FROM forebay.change_log entry
     WHERE (entry.xid, entry.seq) IN (
           SELECT oldest.xid, oldest.seq FROM forebay.change_log oldest
            WHERE oldest.xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY oldest.xid, oldest.seq LIMIT $2)
       AND entry.at < now() - make_interval(secs => $1)
    RETURNING entry.xid),
noted AS (
    UPDATE forebay.change_log_kept kept
       SET gone = greatest(kept.gone, last.xid)
      FROM (SELECT pruned.xid FROM pruned ORDER BY pruned.xid DESC LIMIT 1) last)
SELECT count(*) FROM pruned
