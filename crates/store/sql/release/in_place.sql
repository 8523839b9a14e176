-- Which functions are in place: the newest release that has any, the digest of those that exist once, and of those of
-- the release $1. Of a schema $2 that is gone, nothing is.
SELECT coalesce((SELECT max(newest.number) FROM forebay.release newest), 0) AS newest,
       coalesce((SELECT newest.shared_functions FROM forebay.release newest ORDER BY newest.number DESC LIMIT 1),
                '') AS shared,
       coalesce((SELECT own.functions FROM forebay.release own
                  WHERE own.number = $1::int AND to_regnamespace($2::text) IS NOT NULL), '') AS own
