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
