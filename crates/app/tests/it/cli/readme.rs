//! What the README tells to type, typed.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::cli::Cli;
use crate::support::dev::Place;
use crate::support::process::Process;
use crate::tidy::repository::read;

/// How each block of commands is run, by how it begins.
const BLOCKS: [(&str, How); 11] = [
    ("./dev/up\n", How::Elsewhere("the test starts what it starts")),
    ("./target/debug/forebay run hello", How::Typed),
    ("./target/debug/forebay validate", How::Typed),
    ("KEY=", How::Typed),
    ("./target/debug/forebay ls ", How::Typed),
    ("printf ", How::Typed),
    ("./target/debug/forebay queue ls", How::Typed),
    ("./target/debug/forebay key create laptop", How::Typed),
    ("sudo -u postgres psql ", How::Served),
    ("export FOREBAY_AUTH_ROOT_KEY=", How::Served),
    ("./dev/check\n", How::Elsewhere("it runs this test")),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// In order, beside a `dev`.
    Typed,
    /// In order, with a database of one's own.
    Served,
    Elsewhere(&'static str),
}

/// The blocks of a language, in order.
fn blocks(language: &str) -> Vec<String> {
    let page = read("README.md");
    let start = format!("\n```{language}\n");
    page.split(&start).skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

fn run_as(how: How) -> String {
    let mut script = "set -euo pipefail\n".to_owned();
    for block in blocks("sh") {
        let known = BLOCKS.iter().find(|(start, _)| block.starts_with(start));
        let (_, known) = known.unwrap_or_else(|| panic!("say in BLOCKS how this is run:\n{block}"));
        if *known == how {
            // What was put in the background belongs to its block.
            script.push_str(&format!("{block}wait\n"));
        }
    }
    script
}

/// A directory where `./target/debug/forebay` is the binary under test.
fn built(cli: &Cli) {
    std::fs::create_dir_all(cli.home().join("target/debug")).expect("a directory");
    symlink(env!("CARGO_BIN_EXE_forebay"), cli.home().join("target/debug/forebay")).expect("a link");
}

fn bash(cli: &Cli, script: &str) -> Command {
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).env_clear().current_dir(cli.home()).env("HOME", cli.home());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

#[tokio::test]
async fn what_the_readme_says_beside_dev_works() {
    let place = Place::new();
    built(&place.user);
    let dev = place.start(&["--ephemeral"]).await;
    let address = dev.base.trim_start_matches("http://");
    let pasted: Vec<String> = blocks("sh").into_iter().filter(|block| block.contains(" run hello ")).collect();
    for line in pasted[0].lines() {
        let line = line.replace("./target/debug/forebay", env!("CARGO_BIN_EXE_forebay"));
        assert!(dev.process.stdout.contain(&line), "`dev` prints {line}: {:?}", dev.process.stdout.all());
    }
    let workflow = &blocks("yaml")[0];
    place.user.file("order.yaml", &workflow.replace("127.0.0.1:7400", address));
    let script = run_as(How::Typed).replace("127.0.0.1:7400", address);
    let output = tokio::process::Command::from(bash(&place.user, &script)).output().await.expect("bash");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{out}\n{err}");
    for told in
        ["Hello, Ada!", "Order A1 is confirmed.", "\"executionId\"", "3 started, 0 refused", "its definition is paused"]
    {
        assert!(out.contains(told) || err.contains(told), "{told}:\n{out}\n{err}");
    }
}

#[tokio::test]
async fn what_the_readme_says_about_a_database_of_ones_own_works() {
    let admin = std::env::var("FOREBAY_TEST_DATABASE_URL").expect("./dev/test names a server");
    let (_, host) = admin.split_once("host=").expect("its socket's directory");
    let host = host.split('&').next().expect("a directory");
    let name = format!("readme_{}", std::process::id());
    let cli = Cli::new();
    built(&cli);
    let script = run_as(How::Served)
        .replace("sudo -u postgres psql", &format!("psql -q '{admin}'"))
        .replace("ROLE forebay", &format!("ROLE {name}"))
        .replace("DATABASE forebay OWNER forebay", &format!("DATABASE {name} OWNER {name}"))
        .replace(
            "postgresql://forebay:change-me@localhost/forebay",
            &format!("'postgresql:///{name}?host={host}&user={name}'"),
        )
        .replace("./target/debug/forebay serve", "exec ./target/debug/forebay serve")
        .replace("127.0.0.1:7400", "127.0.0.1:0");
    let mut service = Process::spawn("serve", bash(&cli, &script));
    service.says("ready").await;
    service.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(service.ended().await.success());
    let drop = format!("psql -q '{admin}' -c 'DROP DATABASE {name}' -c 'DROP ROLE {name}'");
    assert!(bash(&cli, &drop).status().expect("bash").success());
}

#[tokio::test]
async fn every_command_is_in_the_readme() {
    let page = read("README.md");
    let help = Cli::new().ok(&["-h"]).await;
    let list = help.split("\n\n").find_map(|part| part.strip_prefix("Commands:\n")).expect("a list");
    let words: Vec<&str> = page.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
    let named = |command: &&str| page.contains(&format!("forebay {command}")) || words.contains(command);
    let missing: Vec<&str> =
        list.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| !named(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
