-- Tables that have become more than twice as large as the planner was told. Not while they are empty:
-- it would only learn that reading all of one costs nothing. Nor once it knows them to be large: then
-- it plans no other way, and autovacuum keeps the rest.
SELECT class.relname::text
FROM unnest(ARRAY['forebay.execution_queue', 'forebay.workflow_execution', 'forebay.workflow_execution_node',
                  'forebay.activity']::regclass[]) AS watched(id)
JOIN pg_class class ON class.oid = watched.id
WHERE class.relpages < 256
  AND pg_relation_size(class.oid) / current_setting('block_size')::bigint > 8 + 2 * class.relpages
  AND pg_stat_get_live_tuples(class.oid) > 500
