-- How many active keys the workspace $1 has, counted up to $2.
SELECT count(*) AS active
FROM (SELECT 1
      FROM forebay.api_key
      WHERE workspace_id = $1::uuid
        AND revoked_at IS NULL
        AND coalesce(expires_at > clock_timestamp(), true)
      LIMIT $2::bigint) AS living
