-- How many jobs there are.
SELECT count(*) FROM public.workflow_queue_projection
