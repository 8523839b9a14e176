-- Appends events, all or none, each once: functions/event.sql.
SELECT ord, added, sequence, version, created
FROM fb_append_1($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::int[], $6::text[], $7::jsonb[], $8::jsonb[])
ORDER BY ord
