-- Registers a process under a new id.
INSERT INTO forebay.process (id, host, pid, roles, version, dispatching, release)
VALUES ($1::uuid, $2::text, $3::int, $4::text[], $5::text, 'dispatcher' = ANY ($4::text[]), $6::int)
