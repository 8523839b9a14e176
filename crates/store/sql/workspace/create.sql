-- A new workspace. An unknown tier is a foreign-key violation, a taken name a unique one.
INSERT INTO workspace (id, name, tier, limit_override, weight) VALUES ($1::uuid, $2::text, $3::text, $4::int, $5::smallint)
