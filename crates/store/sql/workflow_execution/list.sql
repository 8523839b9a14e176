-- A page of executions, newest first: functions/lists.sql.
SELECT id, workspace_id, workflow_definition_id, version_id, status, error, priority, concurrency_key, created_at,
       started_at, completed_at, duration_ms, cancel_requested_at, version_number, definition_name, wanted, last
FROM forebay_r1.list_executions($1::uuid, $2::uuid[], $3::text[], $4::timestamptz, $5::timestamptz, $6::uuid,
                                $7::bigint, $8::uuid[], $9::bigint)
