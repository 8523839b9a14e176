-- The waits of a run that were answered or expired since the previous call. The last row only confirms that the caller
-- owns the run: functions/wait.sql.
SELECT held, execution, node, iteration, attempt, status, outcome, output, error, answered_by, answered_at
FROM forebay_r1.read_answers($1::uuid, $2::uuid, $3::bigint)
