//! The descriptions of the settings, for operators.

/// The description of each setting, by its full key. `forebay config` and `docs/reference/settings.md` show them.
/// A test checks that every setting has a description.
pub const DESCRIPTIONS: &[(&str, &str)] = &[
    (
        "http.listen",
        "Address and port of the API. Only programs on this machine reach the default; set it to accept requests from \
         other machines.",
    ),
    (
        "http.admin_listen",
        "Separate address for `/healthz`, `/readyz` and `/metrics`, for processes of every role. If set, `http.listen` \
         still serves `/healthz`, but not `/readyz` and `/metrics`.",
    ),
    (
        "http.public_url",
        "URL under which clients reach this service, such as https://forebay.example.com. Links and callbacks begin \
         with it.",
    ),
    ("http.max_body_bytes", "Maximum size of a request body, in bytes."),
    (
        "http.request_timeout_ms",
        "Maximum duration of a request in milliseconds, including the time it waits because of `?wait=`.",
    ),
    (
        "http.max_waits_per_workspace",
        "Maximum number of requests of one workspace that wait at the same time (`?wait=`) for an execution's end or \
         for a task, in this process.",
    ),
    (
        "http.max_streams_per_workspace",
        "Maximum number of open event streams and sockets of one workspace, in this process.",
    ),
    (
        "http.max_stream_backlog_bytes",
        "Maximum size in bytes of the changes that wait for one slow event stream or socket. Above it, Forebay closes \
         the stream, and the client has to connect again.",
    ),
    (
        "http.max_connections",
        "Maximum number of open client connections. If not set, Forebay takes the limit of open files (`ulimit -n`), \
         minus the database connections and `engine.max_calls`. At the maximum, a new connection replaces the \
         connection that has been idle longest.",
    ),
    (
        "http.max_connections_per_address",
        "Maximum number of open connections from one address (IPv6: from one /64 network). If not set, half of \
         `http.max_connections`. See `http.trusted_proxies`.",
    ),
    (
        "http.trusted_proxies",
        "Networks of your proxies and load balancers, such as 10.0.0.0/8. Limits per address do not apply to their \
         connections. For failed authentication, Forebay takes the client's address from their `X-Forwarded-For` \
         header.",
    ),
    (
        "http.header_timeout_ms",
        "Time in milliseconds in which a client must send the request line and all headers of a request. After it, \
         Forebay closes the connection.",
    ),
    (
        "http.idle_timeout_ms",
        "Time in milliseconds after which Forebay closes a connection without a request. Behind a proxy, keep it above \
         the proxy's own idle timeout.",
    ),
    (
        "http.write_timeout_ms",
        "Time in milliseconds after which Forebay closes the connection of a client that reads nothing of its \
         response.",
    ),
    (
        "http.cors_origins",
        "Origins of web pages, such as https://app.example.com, that may read event streams and `/rest/v1` in a \
         browser. If empty, no page may read event streams, and any page that has a key may read `/rest/v1`.",
    ),
    (
        "database.url",
        "URL of the PostgreSQL database, version 15 or later. `forebay dev` starts a database of its own if it is not \
         set.",
    ),
    (
        "database.direct_url",
        "URL of the same database without a pooler. Set it if `database.url` points to a pooler: migrations, \
         heartbeats and notifications need a session of their own.",
    ),
    (
        "database.api_connections",
        "Maximum number of database connections for requests. Keep it small if the database runs on the same cores.",
    ),
    (
        "database.work_connections",
        "Maximum number of database connections for dispatching and for storing progress. At least 4. Requests do not \
         use them.",
    ),
    (
        "database.migrate",
        "Whether to migrate the database when the process starts. Set it to false if you run `forebay migrate` \
         yourself.",
    ),
    ("auth.root_key", "The root key, which may do everything. `forebay root-key` generates one."),
    (
        "auth.root_key_file",
        "File with root keys, one per line. Forebay reads it again every two seconds, so you can add and remove keys \
         without a restart.",
    ),
    ("auth.max_keys_per_workspace", "Maximum number of valid keys of one workspace."),
    (
        "auth.max_failures_per_address",
        "Maximum number of requests with a wrong key or token that one address may send to this process in a minute. \
         Above it, unknown keys from that address get 429. Keys that this process has verified before still work.",
    ),
    (
        "workflow.engine.enabled",
        "Whether this process dispatches and runs executions. If false in all processes, the API still accepts starts, \
         and the queue items wait.",
    ),
    (
        "workflow.max_generations",
        "Maximum length of a chain of executions in which each starts the next, through detached WORKFLOW nodes or \
         emitted events. The execution beyond it fails with `GENERATION_LIMIT`. The limit stops endless loops.",
    ),
    (
        "queue.max_backlog",
        "Maximum number of executions that may wait in a workspace without a backlog limit of its own. If not set, the \
         limit of its tier applies: FREE 10,000, PRO 100,000, ENTERPRISE 1,000,000. Starts by `forebay.enqueue` are \
         exempt from the tier's limit.",
    ),
    (
        "dispatch.poll_interval_ms",
        "Interval in milliseconds at which the background loops look for work without a notification. It is the \
         longest delay that a lost notification can cause.",
    ),
    ("dispatch.batch_min", "Items per claim while few items wait. The batch grows from here to `dispatch.batch_max`."),
    ("dispatch.batch_max", "Maximum number of items per claim. Raise it if claims are always full."),
    (
        "dispatch.start_timeout_ms",
        "Time in milliseconds in which the engine must answer a start request. After it, the answer counts as unknown, \
         and Forebay repeats the request.",
    ),
    (
        "dispatch.parallel_starts",
        "Maximum number of start requests that this process sends to the engine at the same time. It may claim eight \
         times as many items ahead.",
    ),
    (
        "dispatch.max_attempts",
        "After this many refusals by the engine, a queue item is marked `FAILED`. A definition may set its own number.",
    ),
    (
        "dispatch.stale_after_ms",
        "Time in milliseconds after which another process takes over a claimed item, even if its claimer is alive.",
    ),
    (
        "dispatch.notifications",
        "Whether processes send and receive PostgreSQL notifications about new work. If false, they find work only by \
         polling, every `dispatch.poll_interval_ms`. Set it to false if the database cannot LISTEN.",
    ),
    (
        "dispatch.exclusive",
        "Whether only one process at a time may dispatch and take over items. The table `shedlock` holds the lock. Set \
         it to the same value in all processes.",
    ),
    ("process.heartbeat_ms", "Interval in milliseconds between two heartbeats of a process."),
    (
        "process.shard_lease_ms",
        "Time in milliseconds without a heartbeat after which other processes take over a process's shards. At least \
         three times `process.heartbeat_ms`.",
    ),
    (
        "process.claim_lease_ms",
        "Time in milliseconds without a heartbeat after which other processes take over a process's claimed items. The \
         process itself then drops its runs and stops its calls. At least five times `process.heartbeat_ms`.",
    ),
    (
        "process.run_lease_ms",
        "Time in milliseconds without a heartbeat after which other processes resume a process's runs. At least 1.25 \
         times `process.claim_lease_ms`.",
    ),
    (
        "process.drain_timeout_ms",
        "Grace period in milliseconds for calls in flight when the process shuts down. Forebay uses at most half of \
         `process.claim_lease_ms`.",
    ),
    (
        "engine.kind",
        "The engine that runs executions: `embedded` runs them in this process, durably; `temporal` runs them on \
         Temporal workers.",
    ),
    (
        "engine.max_runs",
        "Maximum number of runs that this process holds in memory. Parked runs do not count. Raise it if there is \
         enough memory.",
    ),
    ("engine.max_calls", "Maximum number of nodes of this process that make outgoing calls at the same time."),
    (
        "engine.reconcile_after_ms",
        "Age in milliseconds from which Forebay asks an external engine about the state of a run.",
    ),
    ("engine.temporal.address", "URL of the Temporal server. Use https for TLS."),
    (
        "engine.temporal.namespace",
        "Temporal namespace of the workflows. Executions record it: do not change it while executions run.",
    ),
    (
        "engine.temporal.task_queue",
        "Temporal task queue on which dispatchers start workflows and which workers poll. Use the same value in all \
         processes.",
    ),
    ("engine.temporal.api_key", "API key for Temporal. Forebay sends it only over https."),
    ("engine.temporal.api_key_file", "File that holds `engine.temporal.api_key` and nothing else."),
    (
        "engine.temporal.ca_file",
        "PEM file with the authority that signed Temporal's certificate. Needed if the system does not trust that \
         authority.",
    ),
    (
        "engine.temporal.server_name",
        "Host name in Temporal's certificate. Needed if it differs from the host in `engine.temporal.address`.",
    ),
    ("engine.temporal.client_cert_file", "PEM file with the client certificate that Forebay presents to Temporal."),
    ("engine.temporal.client_key_file", "PEM file with the private key of `engine.temporal.client_cert_file`."),
    (
        "engine.temporal.encryption_key",
        "Key of 64 hexadecimal digits that encrypts all data that Temporal stores for Forebay. To rotate it, give \
         several, separated by commas: the first encrypts, all decrypt.",
    ),
    ("engine.temporal.encryption_key_file", "File that holds `engine.temporal.encryption_key` and nothing else."),
    (
        "engine.temporal.local_activity_below_ms",
        "Calls with a timeout up to this many milliseconds run as local activities. That costs Temporal almost \
         nothing, but can delay the run's other nodes for that time. 0: no local activities.",
    ),
    (
        "engine.temporal.heartbeat_ms",
        "Time in milliseconds without a heartbeat after which Temporal gives a worker's calls to another worker. A \
         terminated execution keeps its slot for this time if a call may be in flight, otherwise for \
         `engine.temporal.local_activity_below_ms`: a worker may not have noticed yet.",
    ),
    (
        "retry.max_attempts",
        "Maximum number of attempts of a node whose definition sets no `retry`. The number is fixed when a version is \
         published. Use the same value in all processes with the role `api`.",
    ),
    ("retry.initial_ms", "Wait before the second attempt of a node, in milliseconds."),
    ("retry.factor", "Each further wait of a node is this many times as long as the wait before."),
    ("retry.max_ms", "Maximum wait between two attempts of a node, in milliseconds."),
    ("retry.http_max_attempts", "Maximum number of attempts of an HTTP_REQUEST node whose definition sets no `retry`."),
    ("retry.http_initial_ms", "Wait before the second attempt of an HTTP_REQUEST node, in milliseconds."),
    ("retry.http_factor", "Each further wait of an HTTP_REQUEST node is this many times as long as the wait before."),
    ("retry.http_max_ms", "Maximum wait between two attempts of an HTTP_REQUEST node, in milliseconds."),
    (
        "outbound.allow",
        "Hosts that workflows may call although they are not public: host:port, or a network and a port such as \
         10.1.0.0/16:port.",
    ),
    (
        "outbound.allow_loopback",
        "Whether workflows may call programs at this machine's loopback addresses. `forebay dev` sets it to true \
         unless you set it.",
    ),
    (
        "outbound.deny",
        "Hosts, addresses and networks that no workflow may call, at any port. It overrides every `allow`, including \
         those of workspaces.",
    ),
    (
        "secrets.key_file",
        "File with the keys that encrypt the secrets of workspaces: one ID:BASE64 per line, of 32 bytes each. The \
         first encrypts, all decrypt. Without a key, no secret can be set.",
    ),
    (
        "secrets.keys",
        "The keys that `secrets.key_file` would contain, separated by commas. Set only one of the two settings.",
    ),
    (
        "log.filter",
        "Which log lines are written: error, warn, info, debug, or a filter such as info,store=debug. If not set: \
         info, and warn for `forebay dev`.",
    ),
    ("log.format", "Format of the log: text, or json for one JSON object per line."),
    (
        "metrics.sample_interval_ms",
        "Interval in milliseconds at which the gauges of queue depth, oldest age and slots are measured.",
    ),
    (
        "retention.execution_days",
        "Number of days for which an ended execution and its nodes are kept. May be a fraction. 0 keeps executions \
         forever.",
    ),
    (
        "retention.activity_days",
        "Number of days for which an entry of the audit log is kept. 0 keeps entries forever. The start of an \
         execution is kept with the execution.",
    ),
    ("retention.job_days", "Number of days for which an ended job is kept. Its events are kept. 0 keeps jobs forever."),
    (
        "retention.delivery_days",
        "Number of days for which an ended webhook delivery is kept. 0 keeps deliveries forever.",
    ),
    (
        "job.retry_after_ms",
        "Wait in milliseconds before the second attempt of a job. Before its third and last attempt the wait is twice \
         as long.",
    ),
];
