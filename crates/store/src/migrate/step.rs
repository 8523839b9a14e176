//! The migrations of this build, and which of them the database has.
//!
//! A migration is one of two kinds, distinguished by its first line:
//!
//! ```text
//! (anything)   one transaction, with its history row: for statements that hold a lock for a moment, such as ADD COLUMN
//! -- online    one statement at a time, outside a transaction: CREATE INDEX CONCURRENTLY, VALIDATE CONSTRAINT
//! ```
//!
//! Invariants
//! - A statement of an online migration may run twice, because the process may die before it writes the history row. So
//!   every such statement contains IF NOT EXISTS, or has no effect the second time.
//! - A new index starts with other columns than the indexes of the previous release. Otherwise the planner may choose
//!   the new index for statements of the previous release.
//! - A transaction locks one table that is in use, or several in the same order as earlier migrations.
//!
//! Not here: running them without blocking others (`patience`).

use sha2::{Digest as _, Sha256};
use tokio_postgres::Client;

use crate::Error;

/// The table of applied migrations.
pub(super) const HISTORY: &str = "forebay.migration";

/// The first line of a migration that runs outside a transaction.
const ONLINE: &str = "-- online";

/// One migration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Migration {
    pub(super) version: i32,
    pub(super) name: &'static str,
    text: &'static str,
}

/// All migrations, oldest first.
const ALL: [Migration; 1] =
    [Migration { version: 1, name: "baseline", text: include_str!("../../migrations/V1__baseline.sql") }];

/// The migrations of this build, oldest first.
pub(super) fn all() -> Vec<Migration> {
    #[cfg(feature = "test-release")]
    if crate::release::is_next() {
        return ALL.into_iter().chain(NEXT).collect();
    }
    ALL.to_vec()
}

/// The migrations of the synthetic next release.
#[cfg(feature = "test-release")]
const NEXT: [Migration; 2] = [
    Migration { version: 2, name: "a_column", text: include_str!("../../tests/next/V2__a_column.sql") },
    Migration { version: 3, name: "an_index", text: include_str!("../../tests/next/V3__an_index.sql") },
];

/// How a migration is run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Transaction,
    Online(Vec<String>),
}

impl Migration {
    pub(super) fn kind(&self) -> Kind {
        if self.text.lines().next() == Some(ONLINE) { Kind::Online(statements(self.text)) } else { Kind::Transaction }
    }

    /// The statements of a transaction, with its history row.
    pub(super) fn transaction(&self) -> String {
        format!("{}\n{};", self.text, self.history_insert())
    }

    /// The statement that records the migration as applied.
    pub(super) fn history_insert(&self) -> String {
        let Migration { version, name, .. } = self;
        let checksum = digest(self.text);
        format!("INSERT INTO {HISTORY} (version, name, checksum) VALUES ({version}, '{name}', '{checksum}')")
    }
}

impl std::fmt::Display for Migration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "V{}__{}", self.version, self.name)
    }
}

/// A short hash of a text.
pub(super) fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The statements of an online migration. Each ends at a line that ends with a semicolon.
fn statements(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in text.lines().filter(|line| !line.trim_start().starts_with("--") && !line.trim().is_empty()) {
        if let Some(last) = all.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
        if line.trim_end().ends_with(';') {
            all.push(String::new());
        }
    }
    all.retain(|statement| !statement.is_empty());
    all
}

/// The index, with its table's schema, that a statement builds concurrently.
pub(super) fn index_of(statement: &str) -> Option<String> {
    let words: Vec<&str> = statement.split_whitespace().collect();
    let at = |word: &str| words.iter().position(|other| other.eq_ignore_ascii_case(word));
    let (create, concurrently, on) = (at("CREATE")?, at("CONCURRENTLY")?, at("ON")?);
    let (name, table) = (words.get(on.checked_sub(1)?)?, words.get(on + 1)?);
    let schema = table.split_once('.')?.0;
    (create == 0 && concurrently < on).then(|| format!("{schema}.{name}"))
}

/// The migrations that the database has.
#[derive(Debug, Default)]
pub(super) struct History(Vec<(i32, String)>);

impl History {
    /// Empty if no migration was ever applied.
    pub(super) async fn read(client: &Client) -> Result<History, Error> {
        let known = "SELECT to_regclass($1) IS NOT NULL";
        if !client.query_one(known, &[&HISTORY]).await?.try_get::<_, bool>(0)? {
            return Ok(History::default());
        }
        let rows = client.query(&format!("SELECT version, checksum FROM {HISTORY} ORDER BY version"), &[]).await?;
        let read = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
        Ok(History(rows.iter().map(read).collect::<Result<_, Error>>()?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Does the database have a migration that this build does not know?
    pub(super) fn is_newer(&self) -> bool {
        self.0.iter().any(|(version, _)| all().iter().all(|migration| migration.version < *version))
    }

    /// The migrations that remain to be applied.
    pub(super) fn pending(&self) -> Vec<Migration> {
        let has = |migration: &Migration| self.0.iter().any(|(version, _)| *version == migration.version);
        all().into_iter().filter(|migration| !has(migration)).collect()
    }

    /// An applied migration whose text differs from this build's.
    pub(super) fn diverged(&self) -> Option<Migration> {
        let differs = |migration: &Migration| {
            let checksum = digest(migration.text);
            self.0.iter().any(|(version, applied)| *version == migration.version && *applied != checksum)
        };
        all().into_iter().find(differs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_a_migration() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        files.sort_by_key(|name| name[1..].split("__").next().and_then(|number| number.parse::<i32>().ok()));
        assert_eq!(files, ALL.map(|migration| format!("{migration}.sql")), "list it in ALL");
    }

    #[test]
    fn no_migration_of_a_database_in_use_holds_a_lock_for_long() {
        for migration in ALL.iter().skip(1).chain(&NEXT) {
            let text = migration.text.to_uppercase();
            let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
            let (code, online) = (code.join(" "), migration.kind() != Kind::Transaction);
            for statement in code.split(';') {
                let has = |words: &str| statement.contains(words);
                let builds = (has("CREATE INDEX") || has("CREATE UNIQUE INDEX")) && !has("CONCURRENTLY");
                assert!(!builds, "{migration}: build an index CONCURRENTLY, in an online migration");
                assert!(!has("CONCURRENTLY") || online, "{migration}: begin with the line {ONLINE}");
                assert!(!has("ADD CONSTRAINT") || has("NOT VALID"), "{migration}: add NOT VALID, validate online");
                let rewrites = has(" TYPE ") || has("SET NOT NULL") || has("VACUUM FULL") || has("CLUSTER ");
                assert!(!rewrites, "{migration}: add a column, fill it, and switch in the next release");
            }
        }
    }

    #[test]
    fn an_online_migration_is_its_statements_one_by_one() {
        let text = "-- online\n-- Why.\nCREATE INDEX CONCURRENTLY IF NOT EXISTS by_a\n    ON forebay.t (a);\n\n\
                    ALTER TABLE forebay.t VALIDATE CONSTRAINT c;\n";
        let online = Migration { version: 2, name: "two", text };
        let Kind::Online(statements) = online.kind() else { panic!("the first migration is online") };
        assert_eq!(statements.len(), 2);
        assert_eq!(index_of(&statements[0]).as_deref(), Some("forebay.by_a"));
        assert_eq!(index_of(&statements[1]), None);
        assert_eq!(index_of("CREATE INDEX by_a ON forebay.t (a)"), None);
        assert_eq!(index_of("CREATE UNIQUE INDEX CONCURRENTLY u ON public.t (a)").as_deref(), Some("public.u"));
        assert_eq!(Migration { version: 1, name: "one", text: "CREATE TABLE t ();" }.kind(), Kind::Transaction);
    }
}
