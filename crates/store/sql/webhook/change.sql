-- Changes a webhook. $3 URL, $4 events, $5 whether the description changes, $6 the description, $7 enabled; null leaves
-- a value unchanged. Enabling clears its failures; disabling records who did it ($8).
UPDATE forebay.webhook
SET url = coalesce($3::text, webhook.url), events = coalesce($4::text[], webhook.events),
    description = CASE WHEN $5::boolean THEN $6::text ELSE webhook.description END,
    disabled_at = CASE $7::boolean WHEN true THEN NULL
                                   WHEN false THEN coalesce(webhook.disabled_at, clock_timestamp())
                                   ELSE webhook.disabled_at END,
    disabled_reason = CASE $7 WHEN true THEN NULL
                              WHEN false THEN coalesce(webhook.disabled_reason, $8::text)
                              ELSE webhook.disabled_reason END,
    failing_since = CASE WHEN $7 THEN NULL ELSE webhook.failing_since END,
    updated_at = clock_timestamp()
WHERE webhook.id = $1::uuid AND ($2::uuid IS NULL OR webhook.workspace_id = $2)
RETURNING webhook.workspace_id
