-- A page was judged, whole ($2 null) or up to a pair: functions/candidate.sql.
SELECT forebay_r1.finish_candidates($1::uuid, $2::bigint, $3::uuid, $4::uuid) AS judged
