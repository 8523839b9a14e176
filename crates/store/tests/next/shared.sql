-- A synthetic next release, for tests of upgrades: a changed shared function with the same effect.
CREATE OR REPLACE FUNCTION forebay.notify_change() RETURNS void LANGUAGE plpgsql AS $fn$
BEGIN
    -- The version of the next release.
    IF pg_try_advisory_xact_lock(hashtextextended('forebay.notify', 0)) THEN
        PERFORM pg_notify('forebay_change', '');
    END IF;
END $fn$;
