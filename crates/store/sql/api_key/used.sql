-- Notes a key's use, to the minute; of several who note it at once one does.
UPDATE forebay.api_key
SET last_used_at = clock_timestamp()
WHERE id = $1::uuid
  AND coalesce(last_used_at < clock_timestamp() - interval '1 minute', true)
