-- Pending jobs for a worker of the API, as they are once claimed: functions/work.sql.
SELECT (c.job).*, c.workspace_id, c.claim, c.lease_until
FROM forebay_r1.claim_jobs($1::uuid, $2::text[], $3::uuid, $4::text, $5::int, $6::int) c
ORDER BY (c.job).created_at, (c.job).id
