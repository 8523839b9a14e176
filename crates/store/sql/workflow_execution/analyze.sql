-- Updates the planner's statistics, so that sessions plan again.
ANALYZE (SKIP_LOCKED) forebay.workflow_execution
