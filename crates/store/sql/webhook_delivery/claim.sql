SELECT delivery, place FROM forebay.fb_deliveries_claim_1($1::uuid, $2::uuid, $3::int, $4::int, $5::int, $6::float8)
