-- Records a successful delivery: the webhook is not failing.
UPDATE forebay.webhook SET failing_since = NULL WHERE id = $1::uuid AND failing_since IS NOT NULL
