-- Delays the calls of `record` by the processes that are named in this table. A delayed call waits before it reads any
-- row, as if the network had delayed it. This is a fault, not a mutant: the service must refuse a late record.
CREATE UNLOGGED TABLE chaos_late (name text PRIMARY KEY);

CREATE FUNCTION chaos_arrive() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    WHILE EXISTS (SELECT 1 FROM chaos_late l WHERE l.name = current_setting('application_name')) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
