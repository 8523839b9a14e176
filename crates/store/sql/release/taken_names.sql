-- The names of ours in the schema public that something else has; null if there are none. shedlock may be shared.
SELECT 'there is ' || string_agg(name, ', ' ORDER BY name)
FROM unnest(ARRAY['domain_events', 'workflow_queue_projection', 'workflow_execution_queue']) AS name
WHERE to_regclass('public.' || name) IS NOT NULL
