-- A webhook as it is to be. Turned on, it begins anew; turned off, it says by whom.
UPDATE forebay.webhook
SET url = coalesce($3::text, webhook.url), events = coalesce($4::text[], webhook.events),
    description = coalesce($5::text, webhook.description),
    disabled_at = CASE $6::boolean WHEN true THEN NULL
                                   WHEN false THEN coalesce(webhook.disabled_at, clock_timestamp())
                                   ELSE webhook.disabled_at END,
    disabled_reason = CASE $6 WHEN true THEN NULL
                              WHEN false THEN coalesce(webhook.disabled_reason, $7::text)
                              ELSE webhook.disabled_reason END,
    failing_since = CASE WHEN $6 THEN NULL ELSE webhook.failing_since END,
    updated_at = clock_timestamp()
WHERE webhook.id = $1::uuid AND ($2::uuid IS NULL OR webhook.workspace_id = $2)
RETURNING webhook.workspace_id
