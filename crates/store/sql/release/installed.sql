-- Which functions exist: the newest release with functions, the digest of the shared functions, and the digest of the
-- functions of release $1. The last digest is empty if the schema $2 is missing.
SELECT coalesce((SELECT max(newest.number) FROM forebay.release newest), 0) AS newest,
       coalesce((SELECT newest.shared_functions FROM forebay.release newest ORDER BY newest.number DESC LIMIT 1),
                '') AS shared,
       coalesce((SELECT own.functions FROM forebay.release own
                  WHERE own.number = $1::int AND to_regnamespace($2::text) IS NOT NULL), '') AS own
