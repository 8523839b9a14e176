-- Records that the functions of a release exist: $2 is their digest.
INSERT INTO forebay.release (number, functions) VALUES ($1::int, $2::text)
ON CONFLICT (number) DO UPDATE SET made_at = excluded.made_at, functions = excluded.functions
