-- A workspace's own rules for outbound calls, unless it is deleted.
SELECT outbound_allow, outbound_deny FROM forebay.workspace WHERE id = $1::uuid AND deleted_at IS NULL
