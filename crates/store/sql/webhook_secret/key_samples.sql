-- One webhook secret per outer key in use: each step of the recursion finds the next key id in the index.
WITH RECURSIVE known AS (
    (SELECT secret.key_id FROM forebay.webhook_secret secret ORDER BY secret.key_id LIMIT 1)
    UNION ALL
    SELECT (SELECT secret.key_id
            FROM forebay.webhook_secret secret
            WHERE secret.key_id > known.key_id
            ORDER BY secret.key_id
            LIMIT 1)
    FROM known WHERE known.key_id IS NOT NULL)
SELECT sample.webhook_id, sample.workspace_id, sample.version, sample.value_sealed, sample.key_sealed, sample.key_id
FROM known
CROSS JOIN LATERAL (SELECT secret.*
                    FROM forebay.webhook_secret secret
                    WHERE secret.key_id = known.key_id
                    LIMIT 1) sample
ORDER BY sample.key_id
LIMIT $1::bigint
