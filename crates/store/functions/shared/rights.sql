-- Only the owner, and roles to which the owner grants it, may call the shared functions. So no other role can call a
-- function that runs with its owner's rights, or attach one to a table as a trigger. Existing grants stay.
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
