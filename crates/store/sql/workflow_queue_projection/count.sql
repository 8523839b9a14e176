-- How many jobs there are.
SELECT count(*) FROM workflow_queue_projection
