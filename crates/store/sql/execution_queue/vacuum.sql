-- Clears dead entries out of the queue's indexes now. TRUNCATE off: it would lock everybody out.
VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) forebay.execution_queue
