-- A page was judged: functions/candidate.sql.
SELECT fb_candidates_judged_1($1::uuid) AS judged
