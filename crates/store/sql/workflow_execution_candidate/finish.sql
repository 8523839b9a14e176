-- Marks a page of candidates as evaluated: all of it if $2 is null, otherwise up to one pair: functions/candidate.sql.
SELECT forebay_r1.finish_candidates($1::uuid, $2::bigint, $3::uuid, $4::uuid) AS finished
