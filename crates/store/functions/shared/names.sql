-- Names for numbers, each defined once, so that statements are readable. They cost nothing: the planner inlines the
-- number, and matches partial indexes with it.

-- The stages of a queue item; see the table in migrations/V1__baseline.sql.
CREATE OR REPLACE FUNCTION forebay.stage_ready() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 0';
CREATE OR REPLACE FUNCTION forebay.stage_delayed() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 1';
CREATE OR REPLACE FUNCTION forebay.stage_waits_for_key() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 2';
CREATE OR REPLACE FUNCTION forebay.stage_waits_for_definition() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 3';
CREATE OR REPLACE FUNCTION forebay.stage_slot() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 5';
CREATE OR REPLACE FUNCTION forebay.stage_failed() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 9';

-- The classes of advisory locks. Each contains the schema's name, so it differs from other programs' locks.
--   lock_shard()       (class, shard)               claims and changes of limits, one at a time in a shard
--   lock_stream()      (class, hash of a stream)    appends to one stream, one at a time
--   lock_deliveries()  (class, hash of a workspace) one process at a time claims deliveries of a workspace
CREATE OR REPLACE FUNCTION forebay.lock_shard() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $fn$ SELECT hashtext('forebay.shard') $fn$;
CREATE OR REPLACE FUNCTION forebay.lock_stream() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $fn$ SELECT hashtext('forebay.stream') $fn$;
CREATE OR REPLACE FUNCTION forebay.lock_deliveries() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $fn$ SELECT hashtext('forebay.deliveries') $fn$;

-- Rules of the kernel for triggers and for forebay.enqueue, which get no parameters from the kernel. A test compares
-- each value with the kernel's.
CREATE OR REPLACE FUNCTION forebay.semantics() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 3';
CREATE OR REPLACE FUNCTION forebay.priority_step_ms() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 60000::bigint';
CREATE OR REPLACE FUNCTION forebay.max_execution_duration() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $fn$ SELECT interval '30 days' $fn$;
CREATE OR REPLACE FUNCTION forebay.shards() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 64';
CREATE OR REPLACE FUNCTION forebay.default_priority() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 3';
CREATE OR REPLACE FUNCTION forebay.default_job_lease_s() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 900';
CREATE OR REPLACE FUNCTION forebay.max_job_failures() RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 3';

-- Notifies readers of the change log. NOTIFY takes a cluster-wide lock at commit, so at most one open transaction
-- notifies; readers poll for what it misses.
CREATE OR REPLACE FUNCTION forebay.notify_change() RETURNS void LANGUAGE plpgsql AS $fn$
BEGIN
    IF pg_try_advisory_xact_lock(hashtextextended('forebay.notify', 0)) THEN
        PERFORM pg_notify('forebay_change', '');
    END IF;
END $fn$;
