-- By which rules the claims of this database go.
SELECT number FROM forebay.protocol
