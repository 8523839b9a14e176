-- Accepts starts, each answered on its own: functions/shared/enqueue.sql.
--
-- $18 is what the caller takes for the published version, and has judged the input by: it is pinned. Where another
-- is published by now the start is not accepted, and answered as moved, unless it was accepted before.
WITH starts AS MATERIALIZED (
    SELECT start.ord, start.definition, coalesce(start.version, start.expected) AS version,
           start.expected IS NOT NULL AND current.published_version IS DISTINCT FROM start.expected AS moved
    FROM unnest($3::uuid[], $12::uuid[], $18::uuid[]) WITH ORDINALITY AS start(definition, version, expected, ord)
    LEFT JOIN LATERAL (
        SELECT definition.published_version
        FROM forebay.workflow_definition definition
        WHERE definition.id = start.definition AND start.expected IS NOT NULL
        LIMIT 1
    ) current ON true)
SELECT answer.ord,
       CASE WHEN starts.moved AND answer.outcome = 'not_found' THEN 'moved' ELSE answer.outcome END AS outcome,
       answer.execution, answer.workspace, answer.stage
FROM forebay.enqueue_many($1::uuid[], $2::uuid[],
    -- What moved names no definition: it is only looked for among those that were accepted before.
    ARRAY(SELECT CASE WHEN NOT starts.moved THEN starts.definition END FROM starts ORDER BY starts.ord),
    $4::jsonb[], $5::smallint[], $6::timestamptz[], $7::text[],
    $8::text[], $9::bytea[], $10::jsonb[], $11::text[], ARRAY(SELECT starts.version FROM starts ORDER BY starts.ord),
    $13::uuid[], $14::text, $15::int, $16::bigint, $17::int, true) answer
JOIN starts ON starts.ord = answer.ord
ORDER BY answer.ord
