-- Who made a key: what the audit log calls it, and the stored key it showed. What a key made is revoked with it.
ALTER TABLE api_key ADD COLUMN created_by text, ADD COLUMN parent_id uuid;
ALTER TABLE api_key ADD CONSTRAINT api_key_created_by_check CHECK (length(created_by) <= 200);

UPDATE api_key
   SET created_by = made.actor,
       parent_id = (SELECT maker.id FROM api_key maker WHERE 'key:' || maker.id::text = made.actor)
  FROM (SELECT DISTINCT ON (a.subject_id) a.subject_id, a.actor
          FROM activity a
         WHERE a.action = 'key.create' AND a.subject_id IN (SELECT k.id FROM api_key k)
         ORDER BY a.subject_id, a.id) AS made
 WHERE api_key.id = made.subject_id AND length(made.actor) <= 200;

CREATE INDEX api_key_made_with ON api_key (parent_id) WHERE parent_id IS NOT NULL;

-- How many executions may wait in a workspace of each tier, unless the workspace or the settings say otherwise; null for any number.
ALTER TABLE tier ADD COLUMN max_backlog int;
ALTER TABLE tier ADD CONSTRAINT tier_max_backlog_check CHECK (max_backlog >= 0);
UPDATE tier SET max_backlog = CASE name WHEN 'FREE' THEN 10000 WHEN 'PRO' THEN 100000 WHEN 'ENTERPRISE' THEN 1000000 END;

-- Hosts that a workspace may call although they are not public, and hosts that it may not call; both as outbound.allow names them.
ALTER TABLE workspace ADD COLUMN outbound_allow text[] NOT NULL DEFAULT '{}', ADD COLUMN outbound_deny text[] NOT NULL DEFAULT '{}';
ALTER TABLE workspace ADD CONSTRAINT workspace_outbound_check CHECK (cardinality(outbound_allow) <= 100 AND cardinality(outbound_deny) <= 100);

-- The hosts that a secret may be sent to; null for any.
ALTER TABLE secret ADD COLUMN hosts text[];
ALTER TABLE secret ADD CONSTRAINT secret_hosts_check CHECK (cardinality(hosts) BETWEEN 1 AND 20);
