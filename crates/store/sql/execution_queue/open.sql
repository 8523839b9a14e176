-- Lets waiting items of keys and definitions with room reach the ready index: functions/shared/open.sql.
SELECT forebay.fb_open_1($1::uuid[], $2::uuid[], $3::text[]) AS workspace
