-- Candidates that belong to no wait yet, and those whose wait is over: functions/ask.sql.
SELECT fb_candidates_placed_1($1::int) AS placed
