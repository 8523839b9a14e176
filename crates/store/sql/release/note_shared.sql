-- A release put the functions that exist once in place: $2 is their digest.
UPDATE forebay.release SET shared_functions = $2::text WHERE number = $1::int
