-- How many milliseconds until the next delayed item is due.
SELECT (extract(epoch FROM min(available_at) - clock_timestamp()) * 1000)::bigint AS in_ms
FROM (SELECT available_at
      FROM forebay.execution_queue
      WHERE stage = forebay.stage_delayed()
      ORDER BY available_at
      LIMIT 1) next
