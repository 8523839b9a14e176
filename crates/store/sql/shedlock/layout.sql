-- The columns of the lease table as they are, one a line, and whether `name` alone is the key; none if
-- there is no such table.
SELECT string_agg(c.line, E'\n' ORDER BY c.line) || CASE WHEN EXISTS (
           SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = 'name'
            WHERE i.indrelid = to_regclass('public.shedlock') AND i.indisprimary AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum) THEN E'\nkey name' ELSE '' END
  FROM (SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END AS line
          FROM pg_attribute a
         WHERE a.attrelid = to_regclass('public.shedlock') AND a.attnum > 0 AND NOT a.attisdropped) c
