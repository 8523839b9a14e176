-- Claims a page of candidates of the workspace whose turn it is. The last row has only the claim:
-- functions/candidate.sql.
SELECT claim, workspace, execution, node, iteration, match, event, candidate, wait
FROM forebay_r1.claim_candidates($1::uuid, $2::int, $3::float8)
