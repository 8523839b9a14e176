//! Why each setting exists, in words for operators.

/// Why each key exists, by its full name. `forebay config` prints them; a test checks that every
/// key has one.
pub const REASONS: &[(&str, &str)] = &[
    ("http.listen", "where the API listens; loopback unless you say otherwise"),
    (
        "http.admin_listen",
        "an address of its own for /healthz, /readyz and /metrics, in any role; when set, http.listen serves /healthz \
         but neither /readyz nor /metrics",
    ),
    (
        "http.public_url",
        "where others reach this service (https://forebay.example.com): what links and callbacks begin with",
    ),
    ("http.max_body_bytes", "the largest request body taken"),
    ("http.request_timeout_ms", "the longest a request may take, ?wait= included"),
    (
        "http.max_waits_per_workspace",
        "requests of one workspace that may wait for an end or a task (?wait=) at once, in this process",
    ),
    (
        "http.max_streams_per_workspace",
        "event streams and sockets of one workspace that may be open at once, in this process",
    ),
    (
        "http.max_stream_backlog_bytes",
        "changes that may wait for one stream or socket that reads too slowly, in bytes; with more it is closed and \
         must come back",
    ),
    (
        "http.max_connections",
        "connections of clients at once; not set: what the limit of open files (ulimit -n) leaves beside the \
         database's \
         connections and engine.max_calls. A new client takes the place of the connection that has been without a \
         request longest",
    ),
    (
        "http.max_connections_per_address",
        "of these, from one address (IPv6: one /64); not set: half. See http.trusted_proxies",
    ),
    (
        "http.trusted_proxies",
        "networks of proxies and load balancers in front (10.0.0.0/8): their connections carry many clients, so no \
         bound per \
         address applies to them, and their X-Forwarded-For says who failed to authenticate",
    ),
    ("http.header_timeout_ms", "a client that has not sent the whole head of its request by then is disconnected"),
    ("http.idle_timeout_ms", "a connection without a request is closed after that time"),
    ("http.write_timeout_ms", "a client that reads nothing of its answer for that long is disconnected"),
    (
        "http.cors_origins",
        "pages of these origins (https://app.example.com) may read event streams and /rest/v1 in a browser; none \
         named: \
         streams by no page, /rest/v1 by any that has a key",
    ),
    ("database.url", "PostgreSQL 15 or later; `forebay dev` runs one of its own"),
    (
        "database.direct_url",
        "where migrations, heartbeat and hints connect if database.url is a pooler: they need a session",
    ),
    ("database.api_connections", "connections for requests; small, because the database shares the cores"),
    ("database.work_connections", "connections for dispatching and recording, apart from requests"),
    ("database.migrate", "false: somebody else migrates, with `forebay migrate`"),
    ("auth.root_key", "the key that may do everything; `forebay root-key` makes one"),
    (
        "auth.root_key_file",
        "a file with root keys, one per line; read again every two seconds, so keys are added and removed without a \
         restart",
    ),
    ("auth.max_keys_per_workspace", "keys of one workspace that may work at once"),
    (
        "auth.max_failures_per_address",
        "requests with a bad key or token that one address may send per minute, per process; above it, unknown ones \
         from there get 429, and those that this process has verified keep working",
    ),
    ("workflow.engine.enabled", "false: the API accepts, items wait, nothing is dispatched or run"),
    (
        "workflow.max_generations",
        "executions that may start each other in a row, by detached WORKFLOW nodes and by events they emit; the next \
         one fails with GENERATION_LIMIT",
    ),
    (
        "queue.max_backlog",
        "executions that may wait in a workspace that has no limit of its own; not set: as many as its tier allows \
         (FREE 10,000, PRO 100,000, ENTERPRISE 1,000,000), but for starts by `forebay.enqueue`",
    ),
    ("dispatch.poll_interval_ms", "how long a lost hint can delay anything"),
    ("dispatch.batch_min", "items per claim when little is waiting"),
    ("dispatch.batch_max", "items per claim when much is waiting"),
    ("dispatch.start_timeout_ms", "how long an engine may take to answer a start"),
    ("dispatch.parallel_starts", "starts of this process under way at once; eight times as many may be claimed ahead"),
    ("dispatch.max_attempts", "refused so often by the engine, an item is FAILED; a definition may say otherwise"),
    ("dispatch.stale_after_ms", "an item claimed for longer is taken over whatever its claimer says"),
    ("dispatch.hints", "false: rely on the poll alone"),
    ("dispatch.exclusive", "true: one process at a time dispatches and recovers, through the table shedlock"),
    ("process.heartbeat_ms", "how often a process says that it is alive"),
    ("process.shards_after_ms", "silent for so long, its shards move to others"),
    ("process.claims_after_ms", "silent for so long, its claims move, and it stops its own requests"),
    ("process.runs_after_ms", "silent for so long, its runs are resumed by others"),
    ("process.drain_ms", "told to stop, so long for calls in flight, and at most half of process.claims_after_ms"),
    ("engine.kind", "what runs executions: embedded, in this process and durable, or temporal, on workers anywhere"),
    ("engine.max_runs", "runs this process holds at once; parked ones do not count"),
    ("engine.max_calls", "nodes of this process that may call out at once"),
    ("engine.reconcile_after_ms", "an engine elsewhere is asked about runs that were handed to it longer ago"),
    ("engine.temporal.address", "where Temporal is; https for TLS"),
    (
        "engine.temporal.namespace",
        "the namespace that workflows live in; it is noted on executions, and not to be changed under them",
    ),
    ("engine.temporal.task_queue", "what dispatchers start on and workers poll; the same for all of them"),
    ("engine.temporal.api_key", "shown to Temporal, over https only"),
    ("engine.temporal.api_key_file", "a file that holds engine.temporal.api_key and nothing else"),
    (
        "engine.temporal.ca_file",
        "a PEM file with the authority of Temporal's certificate, if the system does not know it",
    ),
    ("engine.temporal.server_name", "the name in Temporal's certificate, if it is not that of the address"),
    ("engine.temporal.client_cert_file", "a PEM file with the certificate to show to Temporal"),
    ("engine.temporal.client_key_file", "a PEM file with that certificate's private key"),
    (
        "engine.temporal.encryption_key",
        "64 hexadecimal digits: encrypts whatever Temporal stores of ours. Several, separated by commas: the first \
         encrypts, all decrypt",
    ),
    ("engine.temporal.encryption_key_file", "a file that holds engine.temporal.encryption_key and nothing else"),
    (
        "engine.temporal.local_activity_below_ms",
        "calls that may take no longer are performed within the workflow's task, which costs Temporal next to nothing \
         and can hold up the run's other nodes for that long; 0: none",
    ),
    (
        "engine.temporal.heartbeat_ms",
        "a worker silent for so long loses the calls it makes; a terminated run's slot is free after it",
    ),
    (
        "retry.max_attempts",
        "attempts of a node whose definition sets no `retry`; fixed when a version is published, so set it alike in \
         every process with the role api",
    ),
    ("retry.initial_ms", "the wait before the second attempt"),
    ("retry.factor", "each further wait is this many times as long"),
    ("retry.max_ms", "the longest wait between two attempts"),
    ("retry.http_max_attempts", "attempts of an HTTP_REQUEST node whose definition sets no `retry`"),
    ("retry.http_initial_ms", "the wait before the second attempt of an HTTP_REQUEST"),
    ("retry.http_factor", "each further wait of an HTTP_REQUEST is this many times as long"),
    ("retry.http_max_ms", "the longest wait between two attempts of an HTTP_REQUEST"),
    (
        "outbound.allow",
        "hosts that workflows may call although they are not public, as host:port, or addresses of a range, as \
         10.1.0.0/16:port",
    ),
    (
        "outbound.allow_loopback",
        "workflows may call programs on this machine's own loopback addresses; `dev` sets it unless told otherwise",
    ),
    (
        "outbound.deny",
        "hosts, addresses and ranges that no workflow may call, at any port; goes before every allow, also a \
         workspace's own",
    ),
    (
        "secrets.key_file",
        "a file with the keys that seal secrets, ID:BASE64 of 32 bytes a line: the first seals, all open; without one \
         no secret can be set",
    ),
    ("secrets.keys", "the same keys themselves, separated by commas"),
    ("log.filter", "error, warn, info, debug, or a filter such as info,store=debug; unset: info, and warn for `dev`"),
    ("log.format", "text, or json: one object a line, for machines"),
    ("signals.sample_interval_ms", "how often depth, oldest and slots are looked at for /metrics"),
    (
        "retention.execution_days",
        "executions that ended longer ago are deleted, with their nodes; may be a fraction; 0 keeps them",
    ),
    ("retention.activity_days", "who did what longer ago is deleted; 0 keeps it"),
    ("retention.job_days", "jobs of events that ended longer ago are deleted; their facts stay; 0 keeps them"),
    ("retention.delivery_days", "deliveries of webhooks that ended are deleted when they are older; 0 keeps them"),
    (
        "projection.retry_after_ms",
        "how long after its first failure a job is tried again; twice as long after the second",
    ),
];
