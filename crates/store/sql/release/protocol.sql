-- The claim protocol of this database.
SELECT number FROM forebay.protocol
