//! Runs the commands of the README, the tutorial and the how-to pages as they are written.
//!
//! Invariants
//! - Each page runs separately: with a `forebay dev` that is already running, or with the service and the database that
//!   the page itself starts.
//! - Addresses, ports and databases are replaced by those of the test. Nothing else is replaced.
//!
//! Not here: how a page becomes a script (`support::page`), the walk-through of Temporal (`temporal`).

use std::net::TcpListener;

use crate::support::Receiver;
use crate::support::cli::Cli;
use crate::support::dev::Place;
use crate::support::page::{clone, run, save_files, script};
use crate::tidy::repository::{read, root};

/// Where a page's commands find a service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    /// `forebay dev`, which the test starts.
    Dev,
    /// The one that `OWN_DATABASE` starts, whose commands run first.
    Own,
    /// Nothing of the page is run.
    Unneeded,
}
use Service::{Dev, Own, Unneeded};

const OWN_DATABASE: &str = "docs/how-to/run-on-your-own-database.md";

/// The pages, what they run beside, and what their commands must print.
const PAGES: &[(&str, Service, &[&str])] = &[
    ("README.md", Dev, &["Hello, Ada!", "Order A1 is confirmed.", "\"executionId\""]),
    ("docs/tutorial.md", Dev, &["exit code 3", "\"pens\": 5", "\"parcel\": \"P-A2\"", "12 started, 0 refused"]),
    ("docs/how-to/add-a-node-kind.md", Unneeded, &[]),
    ("docs/how-to/back-up.md", Own, &["STOCK_API_KEY"]),
    ("docs/how-to/call-a-chat-webhook.md", Dev, &["Bearer ***"]),
    ("docs/how-to/limit-a-tenant.md", Dev, &[]),
    ("docs/how-to/look-after-executions.md", Dev, &["3 started, 0 refused", "is paused"]),
    ("docs/how-to/move-to-temporal.md", Unneeded, &[]),
    (OWN_DATABASE, Own, &["acme"]),
    ("docs/how-to/run-a-worker-in-python.md", Dev, &["thumbnails resize of"]),
    ("docs/how-to/start-in-my-own-transaction.md", Own, &["Hello, A42!"]),
    ("docs/how-to/upgrade.md", Own, &["forebay_build_info"]),
    ("docs/how-to/wait-for-an-approval.md", Dev, &["already paid"]),
    ("docs/how-to/work-on-forebay.md", Unneeded, &[]),
];

/// What a page takes for granted, beside the service.
fn before(page: &str) -> String {
    match page {
        "README.md" | "docs/tutorial.md" => String::new(),
        "docs/how-to/call-a-chat-webhook.md" => {
            "forebay workspace create acme --tier pro\nexport CHAT_TOKEN=xoxb-of-the-test\n".to_owned()
        }
        "docs/how-to/look-after-executions.md" => script("README.md"),
        "docs/how-to/back-up.md" => {
            "printf %s a-value | forebay secret set STOCK_API_KEY --workspace acme\n".to_owned()
        }
        _ if page_is(page, Own) => String::new(),
        _ => "forebay workspace create acme --tier pro\n".to_owned(),
    }
}

fn page_is(page: &str, service: Service) -> bool {
    PAGES.iter().any(|(name, other, _)| *name == page && *other == service)
}

/// A port that nothing listens at.
fn port() -> String {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    free.expect("a port").port().to_string()
}

fn printed(page: &str, said: &str) {
    let (.., expected) = PAGES.iter().find(|(name, ..)| *name == page).expect("a page of PAGES");
    let missing: Vec<&&str> = expected.iter().filter(|text| !said.contains(**text)).collect();
    assert!(missing.is_empty(), "{page} does not print {missing:?}:\n{said}");
}

async fn beside_dev(page: &str) {
    let place = Place::new();
    clone(&place.user);
    let dev = place.start(&["--ephemeral"]).await;
    let receiver = Receiver::start().await;
    let chat = receiver.url("");
    // The commands that the README runs in the background end by themselves, so its script waits for them. Other
    // pages leave servers running, which end with the script.
    let end = if page == "README.md" { "wait\n" } else { "" };
    let script = format!("{}{}{end}", before(page), script(page))
        .replace("127.0.0.1:7400", dev.base.trim_start_matches("http://"))
        .replace("7499", &port())
        .replace("https://chat.example.com", chat.trim_end_matches('/'))
        .replace("chat.example.com", "127.0.0.1");
    printed(page, &run(&place.user, &script).await);
}

async fn with_a_database_of_its_own(page: &str) {
    let admin = std::env::var("FOREBAY_TEST_DATABASE_URL").expect("./dev/test names a server");
    let (_, host) = admin.split_once("host=").expect("its socket's directory");
    let host = host.split('&').next().expect("a directory");
    let name = format!("pages_{}", store::new_id().simple());
    let empty = store::testing::Database::empty().await;
    let user = Cli::new();
    clone(&user);
    let first = if page == OWN_DATABASE { String::new() } else { script(OWN_DATABASE) };
    let script = format!("export BACKUP_DATABASE_URL='{}'\n{first}{}{}", empty.url, before(page), script(page))
        .replace("sudo -u postgres psql", &format!("psql -q '{admin}'"))
        .replace("ROLE forebay", &format!("ROLE {name}"))
        .replace("DATABASE forebay OWNER forebay", &format!("DATABASE {name} OWNER {name}"))
        .replace(
            "postgresql://forebay:change-me@localhost/forebay",
            &format!("'postgresql:///{name}?host={host}&user={name}'"),
        )
        .replace("127.0.0.1:7400", &format!("127.0.0.1:{}", port()));
    printed(page, &run(&user, &script).await);
    run(&user, &format!("psql -q '{admin}' -c 'DROP DATABASE {name} WITH (FORCE)' -c 'DROP ROLE {name}'")).await;
}

#[tokio::test]
async fn what_the_readme_tells_to_type_works() {
    let place = Place::new();
    let dev = place.start(&["--ephemeral"]).await;
    let page = read("README.md");
    let pasted = page.split("```sh\n").find(|block| block.contains(" run hello ")).expect("lines to paste");
    for line in pasted.split("```").next().unwrap_or_default().lines() {
        let line = line.replace("./target/debug/forebay", env!("CARGO_BIN_EXE_forebay"));
        assert!(dev.process.stdout.contain(&line), "`dev` prints {line}: {:?}", dev.process.stdout.all());
    }
    drop(dev);
    beside_dev("README.md").await;
}

#[tokio::test]
async fn the_tutorial_works_as_it_is_written() {
    beside_dev("docs/tutorial.md").await;
}

#[tokio::test]
async fn calling_a_chat_works_as_it_is_written() {
    beside_dev("docs/how-to/call-a-chat-webhook.md").await;
}

#[tokio::test]
async fn waiting_for_an_approval_works_as_it_is_written() {
    beside_dev("docs/how-to/wait-for-an-approval.md").await;
}

#[tokio::test]
async fn running_a_worker_works_as_it_is_written() {
    beside_dev("docs/how-to/run-a-worker-in-python.md").await;
}

#[tokio::test]
async fn limiting_a_tenant_works_as_it_is_written() {
    beside_dev("docs/how-to/limit-a-tenant.md").await;
}

#[tokio::test]
async fn looking_after_executions_works_as_it_is_written() {
    beside_dev("docs/how-to/look-after-executions.md").await;
}

#[tokio::test]
async fn a_database_of_ones_own_works_as_it_is_written() {
    with_a_database_of_its_own(OWN_DATABASE).await;
}

#[tokio::test]
async fn starting_in_a_transaction_works_as_it_is_written() {
    with_a_database_of_its_own("docs/how-to/start-in-my-own-transaction.md").await;
}

#[tokio::test]
async fn backing_up_and_restoring_work_as_they_are_written() {
    with_a_database_of_its_own("docs/how-to/back-up.md").await;
}

#[tokio::test]
async fn upgrading_works_as_it_is_written() {
    with_a_database_of_its_own("docs/how-to/upgrade.md").await;
}

#[test]
fn every_how_to_page_is_in_the_list() {
    let entries = std::fs::read_dir(root().join("docs/how-to")).expect("pages");
    let names = entries.map(|entry| format!("docs/how-to/{}", entry.expect("a page").file_name().to_string_lossy()));
    let missing: Vec<String> = names.filter(|name| !PAGES.iter().any(|(page, ..)| page == name)).collect();
    assert!(missing.is_empty(), "say in PAGES how these are run: {missing:?}");
    // A page that is not run has no commands that could be.
    for (page, ..) in PAGES.iter().filter(|(page, ..)| page_is(page, Unneeded)) {
        assert_eq!(script(page), "", "{page} has commands: say in PAGES how they are run");
    }
}

#[tokio::test]
async fn every_command_is_on_the_page_of_commands() {
    let page = read("docs/reference/commands.md");
    let words: Vec<&str> = page.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
    let (cli, mut missing) = (Cli::new(), Vec::new());
    for command in super::help::below(&cli.ok(&["--help"]).await) {
        let below = super::help::below(&cli.ok(&[&command, "--help"]).await);
        let lines: Vec<&str> = page.lines().filter(|line| line.contains(&format!("forebay {command} "))).collect();
        if !words.contains(&command.as_str()) {
            missing.push(command.clone());
        }
        let is_named = |name: &&String| lines.iter().any(|line| line.contains(name.as_str()));
        missing.extend(below.iter().filter(|name| !is_named(name)).map(|name| format!("{command} {name}")));
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// The blocks that are what the program draws, by the comment above each: `<!-- forebay graph … -->`.
#[tokio::test]
async fn pages_show_what_is_drawn() {
    for (name, least) in [("README.md", 1), ("docs/tutorial.md", 1), ("docs/reference/graphs.md", 2)] {
        let cli = Cli::new();
        clone(&cli);
        save_files(name, &cli);
        let page = read(name);
        let mut parts = page.split("<!-- forebay ");
        let mut written = parts.next().unwrap_or_default().to_owned();
        let mut count = 0;
        for part in parts {
            let (command, rest) = part.split_once(" -->\n").expect("a comment's end");
            let (fence, rest) = rest.split_once('\n').expect("a block");
            let (_, after) = rest.split_once("```\n").expect("the block's end");
            let drawn = cli.ok(&command.split(' ').collect::<Vec<_>>()).await;
            written.push_str(&format!("<!-- forebay {command} -->\n{fence}\n{}\n```\n{after}", drawn.trim_end()));
            count += 1;
        }
        assert!(count >= least, "the blocks of {name} are found");
        expect_test::expect_file![root().join(name)].assert_eq(&written);
    }
}
