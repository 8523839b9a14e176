-- How many milliseconds until the next parked run is due.
SELECT (extract(epoch FROM min(due.wake_at) - clock_timestamp()) * 1000)::bigint AS in_ms
FROM (SELECT wake_at
      FROM forebay.run_request
      WHERE engine = $1::text AND wake_at IS NOT NULL
      ORDER BY wake_at
      LIMIT 1) due
