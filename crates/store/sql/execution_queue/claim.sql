-- Claims items for some workspaces: functions/claim.sql, which also explains the guard.
SELECT kind, workspace, item, definition, version, attempts, in_doubt, definition_deleted, newer, begun, epoch, input,
       trigger, created, deadline_in_ms, running, max_running, more, blocked_again, blocked_definitions, weight,
       trace, waited_ms
FROM forebay_r1.claim($1::uuid[], $2::int[], $3::uuid, $4::uuid, $5::text, $6::int, $7::int)
