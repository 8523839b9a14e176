//! What the commands say of themselves.

use expect_test::{Expect, expect};

use crate::support::cli::Cli;

async fn check(arguments: &[&str], expected: Expect) {
    expected.assert_eq(&Cli::new().ok(arguments).await);
}

#[tokio::test]
async fn the_program_explains_itself() {
    check(
        &["-h"],
        expect![[r#"
            Runs your customers' workflows, each customer within its limit, and loses nothing

            Usage: forebay [OPTIONS] <COMMAND>

            Commands:
              dev        Run everything on this machine: a database of its own, the API, the engine, a demo
              serve      Run Forebay over a PostgreSQL of your own
              migrate    Bring the database up to this version, and stop
              config     Print the effective settings as TOML, each with its reason; secrets are masked
              root-key   Make a root key for `serve`, on standard output; Forebay stores it nowhere
              workspace  Create, list and change workspaces, and make keys for them
              validate   Check workflow files without a server
              apply      Publish workflow files: a new version of each that changed
              run        Start a workflow, and watch it if you like
              get        Show an execution: how it stands, what it made, why it failed
              watch      Follow an execution to its end
              queue      Show a queue item: its place in line, and why it waits
              cancel     Cancel an execution, waiting or running

            Options:
                  --log <FILTER>         What the service logs: error, warn, info, debug, or a filter such as
                                         info,store=debug [env: FOREBAY_LOG=]
                  --log-format <FORMAT>  How the service logs (the setting log.format) [env:
                                         FOREBAY_LOG_FORMAT=] [possible values: text, json]
              -h, --help                 Print help (see more with '--help')
              -V, --version              Print version

            Connection:
                  --server <URL>         The server's address [default: what `forebay dev` runs, or
                                         http://127.0.0.1:7400] [env: FOREBAY_SERVER=]
                  --key <KEY>            The key to show [default: the one `forebay dev` keeps for its own
                                         server] [env: FOREBAY_KEY]
                  --workspace <NAME|ID>  The workspace, by name or id; needed with the root key only [env:
                                         FOREBAY_WORKSPACE=]
              -o, --output <FORMAT>      How to show answers: for people, or as the server sent them [default:
                                         table] [possible values: table, json]
                  --no-color             No colours; the variable NO_COLOR does the same

            Exit codes:
              0    done; with run --watch and watch: the execution COMPLETED
              1    an error
              2    wrong usage
              3    the execution ended, but not COMPLETED
              4    not authorised: no key, a wrong key, or not allowed
              5    timed out waiting; the execution goes on
              130  interrupted; the execution goes on
        "#]],
    )
    .await;
    let long = Cli::new().ok(&["--help"]).await;
    assert!(long.contains("\nExit codes:\n") && long.contains("Start with `forebay dev`"), "{long}");
}

#[tokio::test]
async fn running_explains_itself() {
    check(
        &["run", "-h"],
        expect![[r#"
        Start a workflow, and watch it if you like

        Usage: forebay run [OPTIONS] <NAME|ID>

        Arguments:
          <NAME|ID>  The workflow, by name or id

        Options:
              --input <JSON|@FILE|->   The input: JSON, @FILE (YAML or JSON), or - for stdin
          -i, --set <KEY=VALUE>        One field of the input: JSON if it reads as JSON, else text; dots
                                       lead into objects
              --priority <N>           1 goes first, 3 is usual, 5 goes last
              --at <TIME>              Not before this time: 2030-01-31T09:00:00Z, or how long from now,
                                       such as 10m
              --concurrency-key <KEY>  Executions with the same key take turns
              --idempotency-key <KEY>  The same key starts the same execution only once
              --log <FILTER>           What the service logs: error, warn, info, debug, or a filter such as
                                       info,store=debug [env: FOREBAY_LOG=]
              --log-format <FORMAT>    How the service logs (the setting log.format) [env:
                                       FOREBAY_LOG_FORMAT=] [possible values: text, json]
          -w, --watch                  Follow it to its end
              --timeout <DURATION>     How long to watch, such as 60s; the execution goes on
          -h, --help                   Print help
          -V, --version                Print version

        Connection:
              --server <URL>         The server's address [default: what `forebay dev` runs, or
                                     http://127.0.0.1:7400] [env: FOREBAY_SERVER=]
              --key <KEY>            The key to show [default: the one `forebay dev` keeps for its own
                                     server] [env: FOREBAY_KEY]
              --workspace <NAME|ID>  The workspace, by name or id; needed with the root key only [env:
                                     FOREBAY_WORKSPACE=]
          -o, --output <FORMAT>      How to show answers: for people, or as the server sent them [default:
                                     table] [possible values: table, json]
              --no-color             No colours; the variable NO_COLOR does the same

        With --watch the output goes to stdout, progress to stderr, and the exit code says how it ended.

        Examples:
          forebay run hello -i name=World --watch
          forebay run order-enrichment --input @order.json -i priority.level=2 --priority 1
          forebay run nightly --at 2030-01-31T02:00:00Z --idempotency-key nightly-2030-01-31
          forebay run report --watch --timeout 60s -o json | jq .output
    "#]],
    )
    .await;
}

#[tokio::test]
async fn workspaces_explain_themselves() {
    check(
        &["workspace", "-h"],
        expect![[r#"
        Create, list and change workspaces, and make keys for them

        Usage: forebay workspace [OPTIONS] <COMMAND>

        Commands:
          create  Create a workspace; needs the root key
          ls      List the workspaces that the key can see
          get     Show a workspace and how full it is
          set     Change a workspace's tier, limit or weight
          key     Make a key for a workspace and show it, this once

        Options:
              --log <FILTER>         What the service logs: error, warn, info, debug, or a filter such as
                                     info,store=debug [env: FOREBAY_LOG=]
              --log-format <FORMAT>  How the service logs (the setting log.format) [env:
                                     FOREBAY_LOG_FORMAT=] [possible values: text, json]
          -h, --help                 Print help
          -V, --version              Print version

        Connection:
              --server <URL>         The server's address [default: what `forebay dev` runs, or
                                     http://127.0.0.1:7400] [env: FOREBAY_SERVER=]
              --key <KEY>            The key to show [default: the one `forebay dev` keeps for its own
                                     server] [env: FOREBAY_KEY]
              --workspace <NAME|ID>  The workspace, by name or id; needed with the root key only [env:
                                     FOREBAY_WORKSPACE=]
          -o, --output <FORMAT>      How to show answers: for people, or as the server sent them [default:
                                     table] [possible values: table, json]
              --no-color             No colours; the variable NO_COLOR does the same
    "#]],
    )
    .await;
}

#[tokio::test]
async fn serving_explains_itself() {
    check(
        &["serve", "-h"],
        expect![[r#"
        Run Forebay over a PostgreSQL of your own

        Usage: forebay serve [OPTIONS]

        Options:
              --config <FILE>        A TOML file of settings; `forebay config` shows every key [env:
                                     FOREBAY_CONFIG=]
              --set <KEY=VALUE>      One setting, such as dispatch.batch_max=200; may be given often
              --database-url <URL>   PostgreSQL 15 or later (the setting database.url) [env:
                                     FOREBAY_DATABASE_URL]
              --listen <ADDRESS>     Where the API listens (the setting http.listen) [env:
                                     FOREBAY_HTTP_LISTEN=]
              --roles <ROLES>        What this process does: api, dispatcher, worker [default:
                                     api,dispatcher,worker]
              --log <FILTER>         What the service logs: error, warn, info, debug, or a filter such as
                                     info,store=debug [env: FOREBAY_LOG=]
              --log-format <FORMAT>  How the service logs (the setting log.format) [env:
                                     FOREBAY_LOG_FORMAT=] [possible values: text, json]
          -h, --help                 Print help
          -V, --version              Print version

        Connection:
              --server <URL>         The server's address [default: what `forebay dev` runs, or
                                     http://127.0.0.1:7400] [env: FOREBAY_SERVER=]
              --key <KEY>            The key to show [default: the one `forebay dev` keeps for its own
                                     server] [env: FOREBAY_KEY]
              --workspace <NAME|ID>  The workspace, by name or id; needed with the root key only [env:
                                     FOREBAY_WORKSPACE=]
          -o, --output <FORMAT>      How to show answers: for people, or as the server sent them [default:
                                     table] [possible values: table, json]
              --no-color             No colours; the variable NO_COLOR does the same

        Example:
          forebay serve --database-url postgresql://forebay@db/forebay --roles api,dispatcher,worker

        Several processes may run side by side on one database; each says its roles.
    "#]],
    )
    .await;
}

#[tokio::test]
async fn dev_explains_itself() {
    check(
        &["dev", "-h"],
        expect![[r#"
        Run everything on this machine: a database of its own, the API, the engine, a demo

        Usage: forebay dev [OPTIONS]

        Options:
              --config <FILE>             A TOML file of settings; `forebay config` shows every key [env:
                                          FOREBAY_CONFIG=]
              --set <KEY=VALUE>           One setting, such as dispatch.batch_max=200; may be given often
              --database-url <URL>        PostgreSQL 15 or later (the setting database.url) [env:
                                          FOREBAY_DATABASE_URL]
              --listen <ADDRESS>          Where the API listens (the setting http.listen) [env:
                                          FOREBAY_HTTP_LISTEN=]
              --data-dir <DIRECTORY>      Where data is kept [env: FOREBAY_DATA_DIR=]
              --ephemeral                 Keep nothing: a temporary database, faster and gone at the end
              --log <FILTER>              What the service logs: error, warn, info, debug, or a filter such
                                          as info,store=debug [env: FOREBAY_LOG=]
              --log-format <FORMAT>       How the service logs (the setting log.format) [env:
                                          FOREBAY_LOG_FORMAT=] [possible values: text, json]
              --no-demo                   Leave the demo workspaces and workflows out
              --postgres-bin <DIRECTORY>  Where PostgreSQL's programs are, if not in a usual place [env:
                                          FOREBAY_PG_BIN=]
          -h, --help                      Print help
          -V, --version                   Print version

        Connection:
              --server <URL>         The server's address [default: what `forebay dev` runs, or
                                     http://127.0.0.1:7400] [env: FOREBAY_SERVER=]
              --key <KEY>            The key to show [default: the one `forebay dev` keeps for its own
                                     server] [env: FOREBAY_KEY]
              --workspace <NAME|ID>  The workspace, by name or id; needed with the root key only [env:
                                     FOREBAY_WORKSPACE=]
          -o, --output <FORMAT>      How to show answers: for people, or as the server sent them [default:
                                     table] [possible values: table, json]
              --no-color             No colours; the variable NO_COLOR does the same

        Examples:
          forebay dev                 data is kept between starts
          forebay dev --ephemeral     data is gone at the end

        It needs PostgreSQL 15 or later installed (Debian: apt-get install postgresql), but no database set
        up: it runs a private one over a socket that only this user can reach.
    "#]],
    )
    .await;
}
