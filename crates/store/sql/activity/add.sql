INSERT INTO forebay.activity (workspace_id, actor, action, subject_type, subject_id, detail)
VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::uuid, $6::jsonb)
