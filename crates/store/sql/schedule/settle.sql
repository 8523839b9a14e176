-- On to the next tick, from the one it left: whoever comes second changes no row. Without a next tick it has ended.
UPDATE forebay.schedule
SET next_at = $3::timestamptz, buffered_at = $4::timestamptz, retry_at = NULL, reason = $5::text,
    status = CASE WHEN $3::timestamptz IS NULL THEN 'ENDED' ELSE schedule.status END,
    updated_at = CASE WHEN $3::timestamptz IS NULL THEN clock_timestamp() ELSE schedule.updated_at END
WHERE schedule.id = $1::uuid AND schedule.status = 'ACTIVE' AND schedule.next_at = $2::timestamptz
