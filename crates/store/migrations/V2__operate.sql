-- What looking after the service needs: leases that other programs share, and what retention looks for.

-- The layout of the ShedLock library, exactly, because other programs use the same table. One that is
-- there already is used as it is (`migrate` has checked it) and never altered. Times are UTC.
CREATE TABLE IF NOT EXISTS shedlock (
    name varchar(64) NOT NULL PRIMARY KEY,
    lock_until timestamp NOT NULL,
    locked_at timestamp NOT NULL,
    locked_by varchar(255) NOT NULL
);

-- Descendants go with their root. Roots themselves are not in it.
CREATE INDEX workflow_execution_root ON workflow_execution (root) WHERE root IS NOT NULL;
