-- Records of a process named here arrive late: they wait before they look at anything, as if the
-- network had kept them. This is a fault, not a mutant: a late record must be refused.
CREATE UNLOGGED TABLE chaos_late (name text PRIMARY KEY);

CREATE FUNCTION chaos_arrive() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    WHILE EXISTS (SELECT 1 FROM chaos_late l WHERE l.name = current_setting('application_name')) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
