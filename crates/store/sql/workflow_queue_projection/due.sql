-- Jobs that the projector may claim: functions/jobs.sql.
SELECT id, retries, event_id, event_type, event_data, event_metadata, stream_id, stream_type, stream_version, created,
       workspace, definition, definition_workspace, filter, input, workflow_id
FROM forebay_r1.due_jobs($1::int)
