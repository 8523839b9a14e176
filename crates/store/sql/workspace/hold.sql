-- Holds a workspace, so that those who count and then add to what it has do so one after the other.
SELECT id FROM forebay.workspace WHERE id = $1::uuid FOR NO KEY UPDATE
