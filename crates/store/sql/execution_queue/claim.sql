-- One claim for some workspaces of a shard: see functions/claim.sql, where the fence is explained.
SELECT kind, workspace, item, definition, version, attempts, in_doubt, gone, newer, begun, epoch, input, trigger, created,
       deadline_in_ms, running, max_running, more, parked, in_the_way, weight, trace, waited_ms
FROM fb_claim_2($1::smallint, $2::uuid[], $3::int[], $4::uuid, $5::uuid, $6::text, $7::int)
