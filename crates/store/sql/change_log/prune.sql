-- Forgets what is older than $1 seconds and finished, at most $2 entries, oldest first; and says up to where in the
-- same statement, so that no reader takes a gap for silence. Run twice it finds less to do.
WITH d AS (
    DELETE FROM forebay.change_log l
     WHERE (l.xid, l.seq) IN (
           SELECT o.xid, o.seq FROM forebay.change_log o
            WHERE o.xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY o.xid, o.seq LIMIT $2)
       AND l.at < now() - make_interval(secs => $1)
    RETURNING l.xid),
k AS (
    UPDATE forebay.change_log_kept k SET gone = greatest(k.gone, d.xid) FROM (SELECT d.xid FROM d ORDER BY d.xid DESC LIMIT 1) d)
SELECT count(*) FROM d
