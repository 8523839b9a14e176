-- How many milliseconds until the next deadline of an execution that has not begun.
SELECT (extract(epoch FROM min(deadline_at) - clock_timestamp()) * 1000)::bigint AS in_ms
FROM (SELECT deadline_at FROM forebay.execution_queue
       WHERE owner IS NULL AND stage < forebay.stage_failed() AND deadline_at > statement_timestamp()
         AND deadline_at < 'infinity'
       ORDER BY deadline_at LIMIT 1) next
