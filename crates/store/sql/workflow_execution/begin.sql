-- The first step of a run that did not begin in the same commit as its claim: functions/begin.sql.
SELECT execution, answer, workspace, definition, version, epoch, input, trigger, created, deadline_in_ms, trace
FROM forebay_r1.begin_runs($1::uuid[], $2::text, $3::text, $4::uuid, $5::int)
