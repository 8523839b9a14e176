-- A synthetic next release, for tests of upgrades: a column that processes of this one do not know.
ALTER TABLE forebay.workflow_execution ADD COLUMN next_release text;
