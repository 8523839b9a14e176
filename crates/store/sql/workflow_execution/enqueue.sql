-- Accepts starts, each answered on its own: functions/shared/enqueue.sql.
--
-- $18 is what the caller takes for the published version, and has judged the input by: it is pinned. Where another
-- is published by now the start is not accepted, and answered as moved, unless it was accepted before.
WITH t AS MATERIALIZED (
    SELECT t.ord, t.definition, coalesce(t.version, t.expected) AS version,
           t.expected IS NOT NULL AND d.published_version IS DISTINCT FROM t.expected AS moved
    FROM unnest($3::uuid[], $12::uuid[], $18::uuid[]) WITH ORDINALITY AS t(definition, version, expected, ord)
    LEFT JOIN LATERAL (
        SELECT d.published_version FROM forebay.workflow_definition d WHERE d.id = t.definition AND t.expected IS NOT NULL LIMIT 1
    ) d ON true)
SELECT r.ord, CASE WHEN t.moved AND r.outcome = 'not_found' THEN 'moved' ELSE r.outcome END AS outcome, r.execution,
       r.workspace, r.stage
FROM forebay.enqueue_many($1::uuid[], $2::uuid[],
    -- What moved names no definition: it is only looked for among those that were accepted before.
    ARRAY(SELECT CASE WHEN NOT t.moved THEN t.definition END FROM t ORDER BY t.ord),
    $4::jsonb[], $5::smallint[], $6::timestamptz[], $7::text[],
    $8::text[], $9::bytea[], $10::jsonb[], $11::text[], ARRAY(SELECT t.version FROM t ORDER BY t.ord), $13::uuid[],
    $14::text, $15::int, $16::bigint, $17::int, true) r
JOIN t ON t.ord = r.ord
ORDER BY r.ord
