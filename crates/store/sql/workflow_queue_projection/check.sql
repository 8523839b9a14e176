-- How the table of jobs differs from the facts (the events that record every change of a job): functions/jobs.sql.
SELECT id, how FROM forebay_r1.differing_jobs()
