//! The rules of this repository that a machine can check.
//!
//! Invariants
//! - Each check names every violation and how to correct it. No check reads more than the files of the repository.
//!
//! Not here: what the compiler, rustfmt and clippy check, and SQL statements against a real server (the tests of
//! `store`).

mod heads;
mod pages;
pub(crate) mod repository;
mod rust;
mod source_documents;
mod sql;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use repository::{File, files};

/// From the bottom up: a crate may use those before it. Crates of one line do not know each other.
const LAYERS: &[&[&str]] =
    &[&["kernel", "private-postgres"], &["supabase"], &["store"], &["engine"], &["temporal"], &["server"], &["app"]];
/// May use any crate, and no crate uses it.
const BENCH: &str = "bench";

/// Values in, values out.
const PURE: &[&str] = &["kernel", "supabase"];

/// Whoever but the crates beside it uses one of these has the wrong job.
const KEPT_TO: &[(&str, &[&str])] = &[
    ("tokio-postgres", &["store", "private-postgres"]),
    ("deadpool-postgres", &["store"]),
    ("axum", &["server"]),
    ("tower-http", &["server"]),
    ("temporalio-client", &["temporal"]),
    ("temporalio-sdk", &["temporal"]),
    ("clap", &["app"]),
    ("clap_complete", &["app"]),
];

/// What would let a pure crate do something rather than decide it.
const NOT_IN_PURE: &[&str] = &["tokio", "futures-util", "tracing", "metrics", "getrandom", "reqwest", "nix", "anyhow"];

const LONGEST_FILE: usize = 400;
const LONGEST_FUNCTION: usize = 60;
const LONGEST_LINE: usize = 120;

/// Functions that are longer and why; this list only ever shrinks.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

/// Files of tests that are longer; this list only ever shrinks.
const LONG_TESTS: &[&str] = &[
    "crates/app/tests/it/api_access.rs",
    "crates/app/tests/it/api_hostile.rs",
    "crates/app/tests/it/waits.rs",
    "crates/engine/tests/it/conformance.rs",
    "crates/engine/tests/it/conformance/long.rs",
    "crates/engine/tests/it/outbound.rs",
    "crates/engine/tests/it/world.rs",
    "crates/kernel/tests/it/draw.rs",
    "crates/kernel/tests/it/orchestration/tree.rs",
    "crates/kernel/tests/it/schedule.rs",
    "crates/store/tests/it/jobs.rs",
    "crates/store/tests/it/schedules.rs",
    "crates/temporal/tests/it/long.rs",
];

/// Says all that is wrong at once.
fn check(rule: &str, offenders: Vec<String>) {
    assert!(offenders.is_empty(), "{rule}\n  {}", offenders.join("\n  "));
}

#[test]
fn dependencies_point_one_way() {
    let mut wrong = Vec::new();
    let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    for (name, manifest) in manifests() {
        for used in names(&manifest, &["dependencies", "dev-dependencies", "build-dependencies"]) {
            let Some(used) = used.strip_prefix("forebay-") else { continue };
            // A crate's tests may turn on a feature of the crate itself.
            let is_below = layer(used) < layer(&name) || used == name;
            if used == BENCH || layer(used).is_none() || !(is_below || name == BENCH) {
                wrong.push(format!("{name} uses {used}"));
            }
        }
        if layer(&name).is_none() && name != BENCH {
            wrong.push(format!("{name} has no layer: it must enforce a sentence of its own, else it is a module"));
        }
    }
    check(
        "kernel <- store <- engine <- temporal <- server <- app; supabase uses the kernel alone; nothing uses bench",
        wrong,
    );
}

#[test]
fn what_a_crate_is_for_stays_in_it() {
    let mut wrong = Vec::new();
    for (name, manifest) in manifests().into_iter().filter(|(name, _)| name != BENCH) {
        let used = names(&manifest, &["dependencies", "build-dependencies"]);
        for (dependency, homes) in KEPT_TO.iter().filter(|(_, homes)| !homes.contains(&name.as_str())) {
            if used.contains(*dependency) {
                wrong.push(format!("{name} uses {dependency}, which is kept to {}", homes.join(" and ")));
            }
        }
        if PURE.contains(&name.as_str()) {
            wrong.extend(NOT_IN_PURE.iter().filter(|no| used.contains(**no)).map(|no| format!("{name} uses {no}")));
        }
    }
    check("a crate's boundary enforces its sentence (ARCHITECTURE.md)", wrong);
}

#[test]
fn every_source_file_says_what_it_is() {
    let silent = files().into_iter().filter(|file| file.is_rust() && !file.text.starts_with("//! "));
    check("open with //! and what the file owns", silent.map(|file| file.path).collect());
}

#[test]
fn files_are_short() {
    let long = |file: &File| {
        let lines = file.lines_that_ship();
        (lines >= LONGEST_FILE).then(|| format!("{}: {lines} lines", file.path))
    };
    let sources = files().into_iter().filter(|file| file.is_rust() && !file.is_test());
    check("split files of 400 lines and more (except tests)", sources.filter_map(|file| long(&file)).collect());
}

#[test]
fn files_of_tests_are_short() {
    let all: BTreeMap<String, usize> = files()
        .into_iter()
        .filter(|file| file.is_rust() && file.is_test())
        .map(|file| (file.path, file.text.lines().count()))
        .collect();
    let long = all.iter().filter(|(path, lines)| **lines >= LONGEST_FILE && !LONG_TESTS.contains(&path.as_str()));
    let long = long.map(|(path, lines)| format!("{path}: {lines} lines"));
    let stale = LONG_TESTS.iter().filter(|path| all.get(**path).is_none_or(|lines| *lines < LONGEST_FILE));
    let stale = stale.map(|path| format!("{path} is short now: take it off the list"));
    check("split files of tests of 400 lines and more", long.chain(stale).collect());
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for file in files().into_iter().filter(File::is_rust) {
        let tests_from = if file.is_test() { 0 } else { file.lines_that_ship() };
        // A test's snapshots and documents are data.
        let counted = |found: &rust::Function| if found.line > tests_from { found.lines_of_code } else { found.lines };
        let functions = rust::functions(&rust::code(&file.text)).into_iter();
        long.extend(
            functions.filter(|found| counted(found) >= LONGEST_FUNCTION).map(|found| (file.path.clone(), found)),
        );
    }
    let is = |(path, found): &(String, rust::Function), (at, name, _): &(&str, &str, &str)| {
        path == at && found.name == *name
    };
    let wrong = long.iter().filter(|found| !LONG_FUNCTIONS.iter().any(|known| is(found, known)));
    let wrong = wrong.map(|(path, found)| format!("{path}:{}: {} has {} lines", found.line, found.name, found.lines));
    let stale = LONG_FUNCTIONS.iter().filter(|known| !long.iter().any(|found| is(found, known)));
    let stale = stale.map(|(path, name, _)| format!("{path}: {name} is short now: take it off the list"));
    check("split functions of 60 lines and more", wrong.chain(stale).collect());
}

#[test]
fn lines_are_short() {
    let mut wide = Vec::new();
    for file in files().into_iter().filter(File::is_rust) {
        let is_test = file.is_test() || file.path.ends_with("/tests.rs");
        let ships = if is_test { 0 } else { file.lines_that_ship() };
        let mut is_raw = false;
        for (number, line) in file.text.lines().enumerate() {
            // A drawing is as wide as it is, and so is a text that is quoted raw. In tests only comments count.
            let is_text = line.trim_start().starts_with("//") && !line.starts_with("//!     ");
            let is_code = number < ships && !is_raw && !line.trim_start().starts_with("//");
            if (is_text || is_code) && line.chars().count() > LONGEST_LINE {
                wide.push(format!("{}:{}", file.path, number + 1));
            }
            is_raw = if is_raw { !line.contains("\"#") } else { line.contains("r#\"") && !line.contains("\"#") };
        }
    }
    check("break lines at 120 columns; rustfmt leaves texts and macros alone", wide);
}

#[test]
fn files_are_named_for_what_they_hold() {
    let says_nothing = |part: &str| {
        let stem = part.split('.').next().unwrap_or(part);
        ["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc"].contains(&stem)
    };
    let wrong = files()
        .into_iter()
        .map(|file| file.path)
        .filter(|path| path.ends_with("/mod.rs") || path.ends_with(".rs") && path.split('/').any(says_nothing));
    check("foo.rs beside foo/, and no name that fits anything", wrong.collect());
}

#[test]
fn one_test_binary_a_crate() {
    let wrong = files().into_iter().map(|file| file.path).filter(|path| {
        let in_tests = path.split_once("/tests/").filter(|_| path.starts_with("crates/") && path.ends_with(".rs"));
        in_tests.is_some_and(|(_, rest)| !rest.starts_with("it/"))
    });
    check("tests live under tests/it/, with tests/it/main.rs", wrong.collect());
}

#[test]
fn every_statement_is_used_and_every_use_has_its_file() {
    let files = files();
    let stored: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| file.path.strip_prefix("crates/store/sql/").and_then(|path| path.strip_suffix(".sql")))
        .collect();
    let sources = || files.iter().filter(|file| file.path.starts_with("crates/store/src/"));
    let used: BTreeSet<&str> = sources()
        .flat_map(|file| file.text.split("sql!(").skip(1))
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
        .collect();
    let unused = stored.difference(&used).map(|name| format!("sql/{name}.sql is used by nobody"));
    let missing = used.difference(&stored).map(|name| format!("sql!(\"{name}\") has no file"));
    check("a statement is one file, used by sql!", unused.chain(missing).collect());
}

#[test]
fn every_sql_function_is_applied() {
    let of = |folder: &'static str| {
        move |(name, text): &(&str, &'static str)| (format!("crates/store/functions/{folder}{name}.sql"), *text)
    };
    let shared = store::migrate::SHARED.iter().map(of("shared/"));
    let applied: BTreeMap<String, &str> = store::migrate::FUNCTIONS.iter().map(of("")).chain(shared).collect();
    let files = files();
    let stored = files.iter().filter(|file| file.path.starts_with("crates/store/functions/"));
    let wrong = stored.filter(|file| applied.get(&file.path) != Some(&file.text.as_str()));
    check(
        "list it in store::migrate::FUNCTIONS or SHARED under its own name",
        wrong.map(|file| file.path.clone()).collect(),
    );
}

#[test]
fn lints_are_expected_with_a_reason_never_allowed() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| file.is_rust()) {
        for (number, line) in rust::code(&file.text).lines().enumerate() {
            if line.contains("#[allow") || line.contains("#![allow") {
                wrong.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    check("use #[expect(…, reason = …)]", wrong);
}

#[test]
fn nothing_is_left_for_later_or_tied_to_one_machine() {
    let later = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let machine = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/ho", "me/")];
    // A package manager's own place, and a test's example.
    let known = [concat!("/ho", "me/linuxbrew/"), concat!("\"/ho", "me/a\""), concat!("/ho", "me/a/.local/")];
    let mut wrong = Vec::new();
    for file in files() {
        for (number, line) in file.text.lines().enumerate() {
            let plain = known.iter().fold(line.to_owned(), |line, known| line.replace(known, ""));
            let mut words = plain.split(|c: char| !c.is_alphanumeric());
            if words.any(|word| later.contains(&word)) || machine.iter().any(|path| plain.contains(path)) {
                wrong.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    check("do it now or say how it is; name no place of one machine", wrong);
}

#[test]
fn every_route_is_registered_with_its_description() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| file.is_rust() && file.path.starts_with("crates/server/src/http")) {
        let code = rust::code(&file.text);
        let bare =
            code.lines().enumerate().filter(|(_, line)| line.contains(".route(") || line.contains(".route_service("));
        wrong.extend(bare.map(|(number, _)| format!("{}:{}", file.path, number + 1)));
    }
    check("describe the handler with #[utoipa::path(…)] and register it with .routes(routes!(…))", wrong);
}

#[test]
fn scripts_stop_at_the_first_failure() {
    let is_script = |file: &File| {
        let is_sourced = file.path.starts_with("dev/lib/");
        (file.path.starts_with("dev/") || file.path.starts_with(".ci/")) && !is_sourced
    };
    let good = |file: &File| {
        let starts = file.text.starts_with("#!/usr/bin/env ");
        let strict = !file.text.starts_with("#!/usr/bin/env bash") || file.text.contains("\nset -euo pipefail\n");
        starts && strict && file.is_executable
    };
    let wrong = files().into_iter().filter(|file| is_script(file) && !good(file));
    check("#!/usr/bin/env bash, set -euo pipefail, chmod +x", wrong.map(|file| file.path).collect());
}

/// Every crate's manifest, by the crate's short name.
fn manifests() -> BTreeMap<String, toml::Table> {
    let is_crate =
        |path: &str| path == "bench/Cargo.toml" || path.starts_with("crates/") && path.ends_with("/Cargo.toml");
    files()
        .into_iter()
        .filter(|file| is_crate(&file.path))
        .map(|file| {
            let directory = file.path.trim_end_matches("/Cargo.toml").trim_start_matches("crates/").to_owned();
            (directory, file.text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.path)))
        })
        .collect()
}

/// What a manifest depends on, in the sections named.
fn names(manifest: &toml::Table, sections: &[&str]) -> BTreeSet<String> {
    let tables = sections.iter().filter_map(|section| manifest.get(*section)?.as_table());
    tables.flat_map(|table| table.keys().cloned()).collect()
}
