-- Which outer keys seal something is looked up at every start and readiness check: by these indexes, however many secrets there are.
CREATE INDEX secret_of_key ON secret (key_id);
CREATE INDEX webhook_secret_of_key ON webhook_secret (key_id);

-- Whether a binding held for an event when it was appended; null: appended before this was noted, or a fact of the queue's own.
ALTER TABLE domain_events ADD COLUMN bound boolean;
