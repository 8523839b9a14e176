-- The columns of the lease table, one per line, and whether `name` alone is the key; null if there is no such table.
SELECT string_agg(described.line, E'\n' ORDER BY described.line) || CASE WHEN EXISTS (
           SELECT 1
             FROM pg_index index
             JOIN pg_attribute attribute ON attribute.attrelid = index.indrelid AND attribute.attname = 'name'
            WHERE index.indrelid = to_regclass('public.shedlock') AND index.indisprimary AND index.indnkeyatts = 1
              AND index.indkey[0] = attribute.attnum) THEN E'\nkey name' ELSE '' END
  FROM (SELECT attribute.attname || ' ' || format_type(attribute.atttypid, attribute.atttypmod)
               || CASE WHEN attribute.attnotnull THEN ' not null' ELSE '' END AS line
          FROM pg_attribute attribute
         WHERE attribute.attrelid = to_regclass('public.shedlock') AND attribute.attnum > 0
           AND NOT attribute.attisdropped) described
