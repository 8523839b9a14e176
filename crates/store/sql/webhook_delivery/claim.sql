-- Claims due deliveries: functions/webhook.sql.
SELECT delivery, last_workspace
FROM forebay_r1.claim_deliveries($1::uuid, $2::uuid, $3::int, $4::int, $5::int, $6::float8)
