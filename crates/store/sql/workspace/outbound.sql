-- The rules for outbound calls that a living workspace has of its own.
SELECT outbound_allow, outbound_deny FROM forebay.workspace WHERE id = $1::uuid AND deleted_at IS NULL
