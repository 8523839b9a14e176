-- Tells the planner how large it is now; every session plans anew.
ANALYZE (SKIP_LOCKED) forebay.execution_queue
