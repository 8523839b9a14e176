-- Folds an event again whose handling failed: functions/event.sql.
SELECT fb_event_retry_1(e.id) AS folded FROM domain_events e
WHERE e.id = $1::uuid AND ($2::uuid IS NULL OR e.workspace_id = $2)
