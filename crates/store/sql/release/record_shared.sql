-- Records that a release created the shared functions: $2 is their digest.
UPDATE forebay.release SET shared_functions = $2::text WHERE number = $1::int
