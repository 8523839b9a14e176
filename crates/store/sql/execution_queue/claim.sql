-- One claim for some workspaces: see functions/claim.sql, where the fence is explained.
SELECT kind, workspace, item, definition, version, attempts, in_doubt, gone, newer, begun, epoch, input, trigger,
       created, deadline_in_ms, running, max_running, more, put_back, blocked_definitions, weight, trace, waited_ms
FROM forebay_r1.claim($1::uuid[], $2::int[], $3::uuid, $4::uuid, $5::text, $6::int, $7::int)
