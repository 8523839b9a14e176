-- Tables that have become more than twice as large as the planner was told. Not while they are empty:
-- it would only learn that reading all of one costs nothing. Nor once it knows them to be large: then
-- it plans no other way, and autovacuum keeps the rest.
SELECT c.relname::text
FROM unnest(ARRAY['forebay.execution_queue', 'forebay.workflow_execution', 'forebay.workflow_execution_node', 'forebay.activity']::regclass[]) AS t(id)
JOIN pg_class c ON c.oid = t.id
WHERE c.relpages < 256
  AND pg_relation_size(c.oid) / current_setting('block_size')::bigint > 8 + 2 * c.relpages
  AND pg_stat_get_live_tuples(c.oid) > 500
