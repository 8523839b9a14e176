-- Locks a workspace, so that requests that count its rows and then add one run one after the other.
SELECT id FROM forebay.workspace WHERE id = $1::uuid FOR NO KEY UPDATE
