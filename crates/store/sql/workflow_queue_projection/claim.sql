-- Claims pending jobs for a worker that uses the API, and returns them with their claims: functions/jobs.sql.
SELECT (claimed.job).*, claimed.workspace_id, claimed.claim, claimed.lease_until
FROM forebay_r1.claim_jobs($1::uuid, $2::text[], $3::uuid, $4::text, $5::int, $6::int) claimed
ORDER BY (claimed.job).created_at, (claimed.job).id
