//! Profiles: the user's own profiles and the profile of `forebay dev` are stored separately.

use std::os::unix::fs::PermissionsExt;

use expect_test::expect;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::World;
use crate::support::cli::Cli;
use crate::support::dev::{Dev, Place};

#[tokio::test]
async fn a_server_and_its_key_are_kept_under_a_name() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let (root, key) = (world.server.root_key(), tenant.api.key.clone().expect("a key"));
    let cli = Cli::new();
    for (name, key) in [("root", root.expose()), ("tenant", &key)] {
        cli.ok(&["profile", "set", name, "--server", &world.server.base, "--key", key]).await;
        let file = cli.home().join(format!(".config/forebay/{name}.json"));
        assert_eq!(std::fs::metadata(file).expect("a file").permissions().mode() & 0o777, 0o600);
    }
    let names = async |arguments: &[&str]| {
        cli.json(&[&["workspace", "ls"], arguments].concat()).await["items"].as_array().expect("a list").len()
    };
    assert_eq!((names(&["--profile", "root"]).await, names(&["--profile", "tenant"]).await), (1, 1));
    world.tenant("FREE").await;
    assert_eq!((names(&["--profile", "root"]).await, names(&["--profile", "tenant"]).await), (2, 1));
    cli.ok(&["profile", "use", "root"]).await;
    assert_eq!(names(&[]).await, 2, "the chosen one is used");
    let listed = cli.ok(&["profile", "ls"]).await;
    assert!(listed.contains("*  root") && !listed.contains("fbk_"), "{listed}");
    assert!(!cli.ok(&["profile", "ls", "-o", "json"]).await.contains("fbk_"));
    let hint = cli.run(&["workspace", "get", "nobody", "--profile", "tenant"]).await.stderr;
    assert!(hint.ends_with(" workspace ls --profile tenant\n"), "a hint asks the same server: {hint}");
    let asked = cli.run(&["profile", "delete", "root"]).await;
    assert!(asked.code == 2 && asked.stderr.contains("Delete profile root? It is the profile in use."), "{asked:?}");
    cli.ok(&["profile", "delete", "root", "--yes"]).await;
    let commands: [&[&str]; 5] = [
        &["profile", "delete", "root"],
        &["profile", "use", "root"],
        &["ls", "--profile", "root"],
        &["ls", "--profile", "tenant", "--server", "http://127.0.0.1:1"],
        &["profile", "set", "../x", "--server", "http://127.0.0.1:1", "--key", "k"],
    ];
    let shown = expect![[r#"
        $ forebay profile delete root
        ! error: there is no profile root; list profiles: forebay profile ls
        = 2
        $ forebay profile use root
        ! error: there is no profile root; list profiles: forebay profile ls
        = 2
        $ forebay ls --profile root
        ! error: there is no profile root; list profiles: forebay profile ls
        = 2
        $ forebay ls --profile tenant --server http://127.0.0.1:1
        ! error: the key of profile tenant is only for <server>: omit --server, or give --key too
        = 2
        $ forebay profile set ../x --server http://127.0.0.1:1 --key k
        ! error: invalid value '../x' for '<NAME>': use at most 64 letters, digits, '-', '_' and '.', and start with a letter, a digit or '_'
        !
        ! For more information, try '--help'.
        = 2
    "#]];
    let mut all = String::new();
    for command in commands {
        all.push_str(&cli.show(command).await);
    }
    shown.assert_eq(&all.replace(&world.server.base, "<server>"));
}

/// The profile of a name, if there is one.
fn profile(place: &Place, name: &str) -> Option<Value> {
    let path = place.user.home().join(format!(".config/forebay/{name}.json"));
    std::fs::read_to_string(path).ok().map(|text| serde_json::from_str(&text).expect("JSON"))
}

async fn stop(mut dev: Dev, signal: Signal) {
    dev.process.signal(signal);
    assert!(dev.process.ended().await.success(), "{:?}", dev.process.stderr.all());
}

#[tokio::test]
async fn a_dev_beside_another_has_a_profile_of_its_own_and_takes_only_that_away() {
    let place = Place::new();
    let kept = place.start(&["--no-demo"]).await;
    let before = profile(&place, "dev").expect("a profile");
    assert_eq!(before["server"], kept.base.as_str());
    let other = place.start_at("other", &["--ephemeral"]).await;
    let name = format!("dev-{}", other.base.rsplit(':').next().expect("a port"));
    assert_eq!(profile(&place, "dev").as_ref(), Some(&before), "one that lives is not replaced");
    assert_eq!(profile(&place, &name).expect("its own")["server"], other.base.as_str());
    let said = other.process.stdout.all();
    let pasted = format!(" workspace ls --profile {name}");
    assert!(said.iter().any(|line| line.ends_with(&pasted)), "its hints say so: {said:?}");
    let listed = place.user.ok(&["workspace", "ls", "--profile", &name]).await;
    assert!(listed.contains("demo-free") && !place.user.ok(&["workspace", "ls"]).await.contains("demo-free"));
    stop(other, Signal::SIGINT).await;
    assert_eq!((profile(&place, &name), profile(&place, "dev")), (None, Some(before.clone())));

    // A terminal that is closed stops it as Ctrl-C does.
    let postgres = place.postgres().expect("a database server");
    stop(kept, Signal::SIGHUP).await;
    assert!(nix::sys::signal::kill(nix::unistd::Pid::from_raw(postgres), None).is_err(), "the database is stopped too");
    let ephemeral = place.start_at("other", &["--ephemeral", "--no-demo"]).await;
    assert_eq!(profile(&place, "dev"), Some(before), "nor is one that comes back");
    stop(ephemeral, Signal::SIGTERM).await;
}

#[tokio::test]
async fn a_dev_finds_its_root_key_again_or_revokes_the_one_it_replaces() {
    let place = Place::new();
    let first = place.start(&["--no-demo"]).await;
    let key = profile(&place, "dev").expect("a profile")["key"].as_str().expect("a key").to_owned();
    stop(first, Signal::SIGINT).await;
    std::fs::remove_file(place.profile()).expect("a profile");
    let again = place.start(&["--no-demo"]).await;
    assert!(!again.process.stdout.contain("shown only once"), "it is found beside the data");
    assert_eq!(profile(&place, "dev").expect("a profile")["key"], key.as_str());
    stop(again, Signal::SIGINT).await;
    std::fs::remove_file(place.data().join("root-key")).expect("a key");
    let other = place.start(&["--no-demo"]).await;
    assert!(other.process.stdout.contain("shown only once"), "a new one is made");
    let old = Cli::of(&other.base, &key);
    assert_eq!(old.run(&["workspace", "ls"]).await.code, 4, "the old one opens nothing");
    let keys = place.user.json(&["key", "ls"]).await;
    assert_eq!(keys["items"].as_array().map(Vec::len), Some(1), "{keys}");
}

#[tokio::test]
async fn dev_says_which_of_its_settings_is_wrong() {
    let place = Place::new();
    let mut command = place.user.command(&["dev"]);
    let with = command.env("FOREBAY_DATABASE_URL", "postgresql:///x").output().expect("the binary starts");
    let said = String::from_utf8_lossy(&with.stderr).into_owned();
    assert_eq!(with.status.code(), Some(2), "{said}");
    assert!(said.contains("FOREBAY_DATABASE_URL is set, but `dev` runs a private database"), "{said}");
    let data = place.data().display().to_string();
    let nope = place.user.run(&["dev", "--data-dir", &data, "--postgres-bin", "/nope"]).await;
    assert_eq!(nope.code, 2, "{nope:?}");
    assert!(nope.stderr.contains("--postgres-bin /nope: the directory has no postgres and initdb"), "{nope:?}");
}
