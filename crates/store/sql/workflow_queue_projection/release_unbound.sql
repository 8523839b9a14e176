-- Gives due jobs whose binding was deleted to external workers; the projector no longer claims them:
-- functions/jobs.sql.
SELECT forebay_r1.release_unbound_jobs($1::int)
