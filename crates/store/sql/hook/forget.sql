-- A deleted definition has no address.
DELETE FROM forebay.hook WHERE workflow_definition_id = $1::uuid
