-- Tables that have grown to more than twice the size in the planner's statistics. Nearly empty tables are left out:
-- their statistics would only show that a full scan costs nothing. Tables that are known to be large are left out too:
-- their plans no longer change, and autovacuum keeps their statistics current.
SELECT class.relname::text
FROM unnest(ARRAY['forebay.execution_queue', 'forebay.workflow_execution', 'forebay.workflow_execution_node',
                  'forebay.activity']::regclass[]) AS watched(id)
JOIN pg_class class ON class.oid = watched.id
WHERE class.relpages < 256
  AND pg_relation_size(class.oid) / current_setting('block_size')::bigint > 8 + 2 * class.relpages
  AND pg_stat_get_live_tuples(class.oid) > 500
