-- Removes dead entries from the queue's indexes now. TRUNCATE is off, because truncating takes an exclusive lock.
VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) forebay.execution_queue
