-- Names that Forebay needs in the schema `public` and that other objects already have; null if there are none.
-- `shedlock` is not checked, because other programs may share that table.
SELECT 'there is ' || string_agg(name, ', ' ORDER BY name)
FROM unnest(ARRAY['domain_events', 'workflow_queue_projection', 'workflow_execution_queue']) AS name
WHERE to_regclass('public.' || name) IS NOT NULL
