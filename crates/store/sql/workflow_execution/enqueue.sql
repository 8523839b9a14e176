-- Accepts start requests. Each request has its own outcome: functions/shared/enqueue.sql.
--
-- $18 is the version that the caller believes to be published, and against which it checked the input. The execution is
-- pinned to that version. If another version has been published since, the outcome is `version_changed` and nothing is
-- accepted. A repeated request that was accepted earlier still returns its execution.
WITH starts AS MATERIALIZED (
    SELECT start.ord, start.definition, coalesce(start.version, start.expected) AS version,
           start.expected IS NOT NULL AND current.published_version IS DISTINCT FROM start.expected
               AS version_changed
    FROM unnest($3::uuid[], $12::uuid[], $18::uuid[]) WITH ORDINALITY AS start(definition, version, expected, ord)
    LEFT JOIN LATERAL (
        SELECT definition.published_version
        FROM forebay.workflow_definition definition
        WHERE definition.id = start.definition AND start.expected IS NOT NULL
        LIMIT 1
    ) current ON true)
SELECT answer.ord,
       CASE WHEN starts.version_changed AND answer.outcome = 'not_found' THEN 'version_changed'
            ELSE answer.outcome END AS outcome,
       answer.execution, answer.workspace, answer.stage
FROM forebay.enqueue_many($1::uuid[], $2::uuid[],
    -- Such a start names no definition, so it is only searched among those accepted before.
    ARRAY(SELECT CASE WHEN NOT starts.version_changed THEN starts.definition END FROM starts ORDER BY starts.ord),
    $4::jsonb[], $5::smallint[], $6::timestamptz[], $7::text[],
    $8::text[], $9::bytea[], $10::jsonb[], $11::text[], ARRAY(SELECT starts.version FROM starts ORDER BY starts.ord),
    $13::uuid[], $14::text[], $15::int, $16::bigint, $17::int, true, $19::int) answer
JOIN starts ON starts.ord = answer.ord
ORDER BY answer.ord
