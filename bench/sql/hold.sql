-- A dispatcher that is named here is kept waiting where it is about to store that an item was dispatched: the engine
-- has answered, nothing is committed. It waits before it has locked anything.
CREATE TABLE chaos_hold (name text PRIMARY KEY);

CREATE FUNCTION chaos_hold() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- What claims, and what begins a run, sets the same columns inside functions.
    WHILE current_query() LIKE '%SET status = ''DISPATCHED''%'
            AND EXISTS (SELECT 1 FROM chaos_hold WHERE name = current_setting('application_name')) LOOP
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_hold BEFORE UPDATE OF dispatched_at ON execution_queue
    FOR EACH STATEMENT EXECUTE FUNCTION chaos_hold();
