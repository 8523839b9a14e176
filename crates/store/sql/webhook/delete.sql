-- A webhook goes with its secrets; what was to be told to it fails when it falls due.
DELETE FROM forebay.webhook w
WHERE w.id = $1::uuid AND ($2::uuid IS NULL OR w.workspace_id = $2)
RETURNING w.workspace_id, w.url
