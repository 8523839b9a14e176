-- Claims open tasks. The last row has only the last workspace from which a task was claimed: functions/task.sql.
SELECT task, claim, last_workspace
FROM forebay_r1.claim_tasks($1::text[], $2::uuid, $3::uuid, $4::text, $5::int, $6::float8)
