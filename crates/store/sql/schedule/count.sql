-- How many schedules of a workspace have not ended, counted up to a limit.
SELECT count(*)
FROM (SELECT 1
      FROM forebay.schedule
      WHERE schedule.workspace_id = $1::uuid AND schedule.status <> 'ENDED'
      LIMIT $2::bigint) counted
