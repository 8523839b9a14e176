SELECT count(*) FROM public.workflow_queue_projection
