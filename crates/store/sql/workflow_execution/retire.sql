-- Deletes executions that ended more than $1 s ago, among the next $3 by id from $2 on, with their
-- descendants, nodes, asks and dead letters. Ids begin with their time and nothing ends before it starts,
-- so the look ends at $1 s ago: no index of ends is needed, which every end would have to pay for.
-- Kept: what has not ended, what somebody's idempotency key of the last $4 s names, and a root with a
-- descendant that lives. Answers where to go on: no row means that the end was reached.
WITH s AS MATERIALIZED (
    SELECT e.id, e.completed_at, e.parent, e.idempotency_key, e.created_at FROM workflow_execution e
     WHERE e.id > $2::uuid
       AND e.id < (lpad(to_hex((extract(epoch FROM statement_timestamp()) * 1000)::bigint - ($1::float8 * 1000)::bigint), 12, '0')
                   || '00000000000000000000')::uuid
     ORDER BY e.id LIMIT $3::bigint),
r AS MATERIALIZED (
    SELECT e.id FROM workflow_execution e JOIN s ON s.id = e.id
     WHERE s.parent IS NULL AND s.completed_at < statement_timestamp() - make_interval(secs => $1::float8)
       AND (s.idempotency_key IS NULL OR s.created_at < statement_timestamp() - make_interval(secs => $4::float8))
       AND NOT EXISTS (SELECT 1 FROM workflow_execution c WHERE c.root = s.id AND c.completed_at IS NULL)
     ORDER BY e.id FOR UPDATE OF e SKIP LOCKED),
a AS MATERIALIZED (
    SELECT r.id FROM r
    UNION ALL SELECT c.id FROM r JOIN workflow_execution c ON c.root = r.id AND c.id <> r.id),
k AS (DELETE FROM workflow_execution_ask k USING a WHERE k.execution_id = a.id),
t AS (DELETE FROM workflow_execution_token t USING a WHERE t.execution_id = a.id),
c AS (DELETE FROM workflow_execution_candidate c USING a WHERE c.execution_id = a.id),
n AS (DELETE FROM workflow_execution_node n USING a WHERE n.execution_id = a.id),
q AS (DELETE FROM execution_queue q USING a WHERE q.id = a.id AND q.status = 'FAILED'),
d AS (DELETE FROM workflow_execution e USING a WHERE e.id = a.id RETURNING e.id)
SELECT (SELECT s.id FROM s ORDER BY s.id DESC LIMIT 1) AS last, (SELECT count(*) FROM d) AS retired
 WHERE EXISTS (SELECT 1 FROM s)
