-- Blocks the dispatchers that are named in this table just before they mark an item as dispatched: the engine has
-- answered, and nothing is committed. A blocked dispatcher waits before its statement locks a row.
CREATE TABLE chaos_hold (name text PRIMARY KEY);

CREATE FUNCTION chaos_hold() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- The functions that claim items and begin runs set the same columns.
    WHILE current_query() LIKE '%SET status = ''DISPATCHED''%'
            AND EXISTS (SELECT 1 FROM chaos_hold WHERE name = current_setting('application_name')) LOOP
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_hold BEFORE UPDATE OF dispatched_at ON execution_queue
    FOR EACH STATEMENT EXECUTE FUNCTION chaos_hold();
