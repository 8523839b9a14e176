-- The functions of a release are in place.
INSERT INTO forebay.release (number) VALUES ($1::int)
ON CONFLICT (number) DO UPDATE SET made_at = excluded.made_at
