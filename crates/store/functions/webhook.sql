-- Ends that are to be told, and who may tell them.

-- Adds a delivery for each of these executions and each live webhook of its workspace that asked for that end. Called
-- by whatever ended them, in its transaction, and only if one of the workspaces has a live webhook. A child's end is
-- told by its root's.
CREATE OR REPLACE FUNCTION forebay_r1.add_deliveries(p_ended uuid[]) RETURNS void
LANGUAGE sql VOLATILE SET enable_seqscan = off AS $fn$
    INSERT INTO forebay.webhook_delivery (id, webhook_id, workspace_id, execution_id, event, due_at)
    SELECT forebay.new_id(), webhook.id, execution.workspace_id, execution.id, execution.status, clock_timestamp()
      FROM unnest(p_ended) AS ended(id)
     CROSS JOIN LATERAL (SELECT *
                           FROM forebay.workflow_execution execution
                          WHERE execution.id = ended.id AND execution.parent IS NULL
                          LIMIT 1) execution
      JOIN forebay.webhook
        ON webhook.workspace_id = execution.workspace_id AND webhook.disabled_at IS NULL
       AND execution.status = ANY (webhook.events)
       AND coalesce(webhook.workflow_definition_id, execution.workflow_definition_id) = execution.workflow_definition_id
    ON CONFLICT DO NOTHING
$fn$;

-- Claims deliveries that are due: from workspace to workspace behind p_after, so many of each that p_each are being
-- sent, and that it has a quarter of what the others leave free, but one always; until there are p_limit or p_steps
-- workspaces were looked at. Those of a sender whose time is up are due. A row a delivery, and a last one without:
-- where to go on, null at the end.
--
-- A workspace that another claims for right now is passed over: that one's claim could not be counted yet.
CREATE OR REPLACE FUNCTION forebay_r1.claim_deliveries(
    p_claim uuid, p_after uuid, p_each int, p_limit int, p_steps int, p_lease_s float8)
RETURNS TABLE (delivery uuid, place uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_place uuid := p_after;
    v_sending int;
    v_left int := p_limit;
    v_claimed int;
BEGIN
    FOR step IN 1..p_steps LOOP
        EXIT WHEN v_left <= 0;
        v_place := (SELECT delivery.workspace_id
                      FROM forebay.webhook_delivery delivery
                     WHERE delivery.due_at IS NOT NULL AND delivery.workspace_id > v_place
                     ORDER BY delivery.workspace_id LIMIT 1);
        EXIT WHEN v_place IS NULL;
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(forebay.lock_deliveries(), hashtext(v_place::text));
        v_sending := (SELECT count(*) FROM forebay.webhook_delivery delivery
                       WHERE delivery.workspace_id = v_place AND delivery.status = 'SENDING'
                         AND delivery.due_at > clock_timestamp());
        RETURN QUERY
        UPDATE forebay.webhook_delivery delivery
           SET status = 'SENDING', claim_id = p_claim, attempts = delivery.attempts + 1,
               due_at = clock_timestamp() + make_interval(secs => p_lease_s)
         WHERE delivery.id = ANY (ARRAY(
               SELECT delivery.id FROM forebay.webhook_delivery delivery
                WHERE delivery.workspace_id = v_place AND delivery.due_at <= clock_timestamp()
                ORDER BY delivery.due_at, delivery.id
                LIMIT greatest(least(p_each, greatest((v_left + v_sending) / 4, 1)) - v_sending, 0)
                FOR UPDATE SKIP LOCKED))
           AND delivery.status IN ('PENDING', 'SENDING')
        RETURNING delivery.id, NULL::uuid;
        GET DIAGNOSTICS v_claimed = ROW_COUNT;
        v_left := v_left - v_claimed;
    END LOOP;
    RETURN QUERY SELECT NULL::uuid, v_place;
END $fn$;
