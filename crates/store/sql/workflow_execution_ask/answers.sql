-- What came for a run since it last looked; the last row only says that the run is held: functions/ask.sql.
SELECT held, execution, node, iteration, attempt, status, outcome, output, error, answered_by, answered_at
FROM forebay_r1.take_answers($1::uuid, $2::uuid, $3::bigint)
