-- A webhook as it is to be. Turned on, it begins anew; turned off, it says by whom.
UPDATE forebay.webhook w
SET url = coalesce($3::text, w.url), events = coalesce($4::text[], w.events), description = coalesce($5::text, w.description),
    disabled_at = CASE $6::boolean WHEN true THEN NULL WHEN false THEN coalesce(w.disabled_at, clock_timestamp()) ELSE w.disabled_at END,
    disabled_reason = CASE $6 WHEN true THEN NULL WHEN false THEN coalesce(w.disabled_reason, $7::text) ELSE w.disabled_reason END,
    failing_since = CASE WHEN $6 THEN NULL ELSE w.failing_since END,
    updated_at = clock_timestamp()
WHERE w.id = $1::uuid AND ($2::uuid IS NULL OR w.workspace_id = $2)
RETURNING w.workspace_id
