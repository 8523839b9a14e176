-- The database's clock, the only one.
SELECT clock_timestamp() AS now
