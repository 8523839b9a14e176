-- How long until the next deadline of any root that has not ended and that nobody runs, in ms. One that runs has a
-- timer of its own.
SELECT (extract(epoch FROM min(deadline_at) - clock_timestamp()) * 1000)::bigint AS in_ms
FROM (SELECT deadline_at FROM forebay.workflow_execution
       WHERE completed_at IS NULL AND owner IS NULL AND parent IS NULL AND deadline_at > statement_timestamp()
       ORDER BY deadline_at LIMIT 1) next
