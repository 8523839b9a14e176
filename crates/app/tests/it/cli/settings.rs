//! Tests how the commands of the service read their settings, and how they refuse invalid ones.

use expect_test::expect;
use store::testing::Database;

use super::check;
use crate::support::cli::Cli;

#[tokio::test]
async fn an_invalid_setting_stops_the_start_and_is_named() {
    let commands: [&[&str]; 8] = [
        &["config", "--set", "dispatch.batchmax=1"],
        &["config", "--set", "dispatch.batch_max=many"],
        &["config", "--set", "process.run_lease_ms=1"],
        &["config", "--config", "none.toml"],
        &["serve"],
        &["serve", "--database-url", "nonsense"],
        &["serve", "--database-url", "postgresql:///x", "--roles", "api,typo"],
        &["serve", "--database-url", "postgresql:///x", "--roles", "dispatcher"],
    ];
    check(
        &Cli::new(),
        &commands,
        expect![[r#"
            $ forebay config --set dispatch.batchmax=1
            ! error: there is no setting dispatch.batchmax: did you mean dispatch.batch_max?
            = 2
            $ forebay config --set dispatch.batch_max=many
            ! error: read the settings: invalid type: string "many", expected i32 in `dispatch.batch_max`
            = 2
            $ forebay config --set process.run_lease_ms=1
            ! error: check the settings: process.run_lease_ms: must be at least 12500 (1.25 times process.claim_lease_ms), but is 1
            = 2
            $ forebay config --config none.toml
            ! error: read settings from none.toml: No such file or directory (os error 2)
            = 2
            $ forebay serve
            ! error: no database is given: use --database-url postgresql://user@host/database or FOREBAY_DATABASE_URL, or start a private database with: forebay dev
            = 2
            $ forebay serve --database-url nonsense
            ! error: the database URL is invalid: invalid connection string
            = 2
            $ forebay serve --database-url postgresql:///x --roles api,typo
            ! error: invalid value 'typo' for '--roles <ROLES>': use api, dispatcher, worker
            !
            ! For more information, try '--help'.
            = 2
            $ forebay serve --database-url postgresql:///x --roles dispatcher
            ! error: with the embedded engine, a process needs both of the roles dispatcher and worker, or neither: change the roles, or set engine.kind to temporal
            = 2
        "#]],
    )
    .await;
}

#[tokio::test]
async fn settings_are_shown_with_descriptions_and_without_secrets() {
    let key = store::access::key::Secret::generate().expect("randomness");
    let setting = format!("auth.root_key={}", key.expose());
    let url = "postgresql://me:hunter2@db/forebay";
    let direct = format!("database.direct_url={url}");
    let shown = Cli::new().ok(&["config", "--set", &setting, "--set", &direct, "--database-url", url]).await;
    assert!(!shown.contains(key.expose()) && !shown.contains("hunter2"), "{shown}");
    let poll = "can cause.\ndispatch.poll_interval_ms = 5000 # default\n";
    assert!(shown.contains(poll), "{shown}");
    assert!(shown.contains("auth.root_key = \"***\" # flag\n"), "{shown}");
    assert!(shown.contains("# http.admin_listen is not set\n"), "{shown}");
    let json = Cli::new().ok(&["config", "--log-format", "json"]).await;
    assert!(json.contains("log.format = \"json\" # flag\n"), "{json}");
    let reread: toml::Table = shown.parse().expect("it is TOML");
    assert_eq!(reread["workflow"]["engine"]["enabled"].as_bool(), Some(true));
}

#[tokio::test]
async fn migrating_is_a_step_of_its_own_that_may_be_repeated() {
    let database = Database::empty().await;
    let migrate = ["migrate", "--database-url", &database.url];
    let all = format!("applied {}\n", crate::support::migrations().join(", "));
    assert_eq!(Cli::new().ok(&migrate).await, all);
    assert_eq!(Cli::new().ok(&migrate).await, "the database is up to date\n");
}
