-- Who may call the functions that exist once: their owner, and whom it lets. A function that runs with its owner's
-- rights is attached to no table of somebody else's, and called by nobody who was not let. What was granted stays.
DO $do$
DECLARE
    v_function record;
BEGIN
    FOR v_function IN
        SELECT own.oid::regprocedure AS name FROM pg_proc own
         WHERE own.pronamespace = 'forebay'::regnamespace
           AND pg_has_role(current_user, own.proowner, 'MEMBER')
           AND (own.proacl IS NULL OR EXISTS (SELECT 1 FROM aclexplode(own.proacl) granted WHERE granted.grantee = 0))
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function.name);
    END LOOP;
END $do$;
