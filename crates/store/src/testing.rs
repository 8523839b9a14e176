//! A real database per test, copied from a template that was migrated once.
//!
//! Invariants
//! - Tests share a server, never a database; a copy costs a few milliseconds.
//! - The template's name is a hash of the schema, so a changed migration makes a new template.
//!
//! Not here: the server (`dev/test` and `dev/check` start one and set its URL).

use std::str::FromStr;

use sha2::{Digest, Sha256};
use tokio_postgres::{Client, Config, NoTls};

use crate::connect::Target;
use crate::migrate::{FUNCTIONS, SHARED, migrate};
use crate::{Store, new_id};

/// The environment variable with the test server's URL.
const SERVER: &str = "FOREBAY_TEST_DATABASE_URL";

/// Lets statements of tests and benchmarks name tables without a schema.
const SEARCH_PATH: &str = "SET search_path = forebay, public";

/// A database of its own. It is dropped with its server.
#[derive(Debug)]
pub struct Database {
    pub url: String,
    pub target: Target,
    pub store: Store,
}

impl Database {
    /// A migrated database.
    pub async fn new() -> Database {
        let server = server();
        let admin = connect(&server).await;
        let template = template(&server, &admin).await;
        let name = format!("t_{}", new_id().simple());
        create(&admin, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        Database::at(with_database(&server, &name))
    }

    /// A database with nothing in it.
    pub async fn empty() -> Database {
        let server = server();
        let name = format!("t_{}", new_id().simple());
        create(&connect(&server).await, &format!("CREATE DATABASE {name}")).await;
        Database::at(with_database(&server, &name))
    }

    /// A database that is already there.
    pub fn at(url: String) -> Database {
        let target = Target::new(&url).expect("the test URL is well formed");
        let store = Store::new(&target, 8).expect("a pool of eight");
        Database { url, target, store }
    }

    /// A plain connection, for changes that bypass the store. Its statements may name tables without a schema; those of
    /// the store may not.
    pub async fn client(&self) -> Client {
        let client = connect(&self.url).await;
        client.batch_execute(SEARCH_PATH).await.expect("a path");
        client
    }
}

fn server() -> String {
    std::env::var(SERVER).unwrap_or_else(|_| panic!("{SERVER} is not set: run tests with ./dev/test"))
}

async fn connect(url: &str) -> Client {
    let config = Config::from_str(url).expect("the test URL is well formed");
    let (client, connection) = config.connect(NoTls).await.expect("the test server answers");
    tokio::spawn(connection);
    client
}

fn with_database(url: &str, name: &str) -> String {
    let (head, tail) = url.split_once("///").expect("a socket URL");
    let (_, options) = tail.split_once('?').expect("a socket URL has options");
    format!("{head}///{name}?{options}")
}

/// Retries, because creating a database fails while another session copies the same template.
async fn create(admin: &Client, statement: &str) {
    for _ in 0..100 {
        match admin.batch_execute(statement).await {
            Ok(()) => return,
            Err(error) if error.code() == Some(&tokio_postgres::error::SqlState::OBJECT_IN_USE) => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{statement}: {error}"),
        }
    }
    panic!("{statement}: the template is still in use after all retries");
}

async fn template(server: &str, admin: &Client) -> String {
    let mut hash = Sha256::new();
    hash.update(include_str!("../migrations/V1__baseline.sql"));
    for (_, text) in FUNCTIONS.iter().chain(&SHARED) {
        hash.update(text);
    }
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name = format!("template_{digest}");
    admin.execute("SELECT pg_advisory_lock(7002)", &[]).await.expect("a lock");
    let there = admin
        .query_one("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", &[&name])
        .await
        .expect("a catalogue");
    if !there.get::<_, bool>(0) {
        let making = format!("{name}_making");
        create(admin, &format!("DROP DATABASE IF EXISTS {making}")).await;
        create(admin, &format!("CREATE DATABASE {making}")).await;
        let target = Target::new(&with_database(server, &making)).expect("the test URL is well formed");
        migrate(&target).await.expect("the migrations apply");
        create(admin, &format!("ALTER DATABASE {making} RENAME TO {name}")).await;
    }
    admin.execute("SELECT pg_advisory_unlock(7002)", &[]).await.expect("release the template lock");
    name
}
