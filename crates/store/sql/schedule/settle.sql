-- Advances a schedule from tick $2 to its next tick $3. The statement names the tick that it leaves, so a second call
-- changes no row. A schedule without a next tick ends.
UPDATE forebay.schedule
SET next_at = $3::timestamptz, buffered_at = $4::timestamptz, retry_at = NULL, reason = $5::text,
    status = CASE WHEN $3::timestamptz IS NULL THEN 'ENDED' ELSE schedule.status END,
    updated_at = CASE WHEN $3::timestamptz IS NULL THEN clock_timestamp() ELSE schedule.updated_at END
WHERE schedule.id = $1::uuid AND schedule.status = 'ACTIVE' AND schedule.next_at = $2::timestamptz
