-- Work bounded by rows, and indexes that hold only what is looked for.

-- Deleted executions of which something is left: too much for the commit that deleted them. Nearly always empty.
CREATE TABLE retired_execution (
    id uuid PRIMARY KEY
);

DROP FUNCTION IF EXISTS fb_jobs_retire_1(float8, int);
