-- Webhook deliveries: added when executions end, and claimed to be sent.

-- Adds a delivery for each of these executions and each enabled webhook of its workspace that subscribes to that
-- terminal status. The transaction that ends the executions calls this, and only if one of the workspaces has an
-- enabled webhook. Only the end of a root is delivered, not the end of a child.
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

-- Claims due deliveries, from workspace to workspace after p_after. For each workspace, at most p_each deliveries are
-- in flight. A workspace gets at most a quarter of the remaining room, but at least one delivery. Stops after p_limit
-- deliveries or p_steps workspaces. A delivery whose claim has expired is due too. Returns a row per delivery. The last
-- row has no delivery, but the workspace to continue after; null: there are no more workspaces.
--
-- If another process is claiming for a workspace right now, the workspace is skipped, because this call cannot see how
-- many deliveries that process claims.
CREATE OR REPLACE FUNCTION forebay_r1.claim_deliveries(
    p_claim uuid, p_after uuid, p_each int, p_limit int, p_steps int, p_lease_s float8)
RETURNS TABLE (delivery uuid, last_workspace uuid)
LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $fn$
#variable_conflict use_column
DECLARE
    v_workspace uuid := p_after;
    v_sending int;
    v_left int := p_limit;
    v_claimed int;
BEGIN
    FOR step IN 1..p_steps LOOP
        EXIT WHEN v_left <= 0;
        v_workspace := (SELECT delivery.workspace_id
                      FROM forebay.webhook_delivery delivery
                     WHERE delivery.due_at IS NOT NULL AND delivery.workspace_id > v_workspace
                     ORDER BY delivery.workspace_id LIMIT 1);
        EXIT WHEN v_workspace IS NULL;
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(forebay.lock_deliveries(), hashtext(v_workspace::text));
        v_sending := (SELECT count(*) FROM forebay.webhook_delivery delivery
                       WHERE delivery.workspace_id = v_workspace AND delivery.status = 'SENDING'
                         AND delivery.due_at > clock_timestamp());
        RETURN QUERY
        UPDATE forebay.webhook_delivery delivery
           SET status = 'SENDING', claim_id = p_claim, attempts = delivery.attempts + 1,
               due_at = clock_timestamp() + make_interval(secs => p_lease_s)
         WHERE delivery.id = ANY (ARRAY(
               SELECT delivery.id FROM forebay.webhook_delivery delivery
                WHERE delivery.workspace_id = v_workspace AND delivery.due_at <= clock_timestamp()
                ORDER BY delivery.due_at, delivery.id
                LIMIT greatest(least(p_each, greatest((v_left + v_sending) / 4, 1)) - v_sending, 0)
                FOR UPDATE SKIP LOCKED))
           AND delivery.status IN ('PENDING', 'SENDING')
        RETURNING delivery.id, NULL::uuid;
        GET DIAGNOSTICS v_claimed = ROW_COUNT;
        v_left := v_left - v_claimed;
    END LOOP;
    RETURN QUERY SELECT NULL::uuid, v_workspace;
END $fn$;
