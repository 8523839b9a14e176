-- Records when a key was used, at most once a minute. Of several concurrent calls only one writes.
UPDATE forebay.api_key
SET last_used_at = clock_timestamp()
WHERE id = $1::uuid
  AND coalesce(last_used_at < clock_timestamp() - interval '1 minute', true)
