-- Hands out open tasks; the last row says where to go on: functions/task.sql.
SELECT task, place FROM fb_tasks_claim_1($1::text[], $2::uuid, $3::uuid, $4::text, $5::int, $6::float8)
