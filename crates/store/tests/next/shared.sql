-- A synthetic next release, for tests of upgrades: a function that exists once, changed. It does what it did.
CREATE OR REPLACE FUNCTION forebay.notify_change() RETURNS void LANGUAGE plpgsql AS $fn$
BEGIN
    -- As the next release has it.
    IF pg_try_advisory_xact_lock(hashtextextended('forebay.notify', 0)) THEN
        PERFORM pg_notify('forebay_change', '');
    END IF;
END $fn$;
