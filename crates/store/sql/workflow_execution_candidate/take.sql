-- A page of what is to be judged, of the workspace whose turn it is; the last row is only its claim:
-- functions/candidate.sql.
SELECT claim, workspace, execution, node, iteration, match, event, candidate, wait
FROM forebay_r1.take_candidates($1::uuid, $2::int, $3::float8)
