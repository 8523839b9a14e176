-- Appends events, all or none, each once: functions/append.sql.
SELECT ord, id, added, sequence, version, created, bound
FROM forebay_r1.append_events($1::uuid[], $2::boolean[], $3::uuid[], $4::uuid[], $5::text[], $6::int[], $7::text[],
                              $8::jsonb[], $9::jsonb[])
ORDER BY ord
