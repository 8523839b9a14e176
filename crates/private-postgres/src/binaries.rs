//! Finds PostgreSQL's programs: which installations exist, and which installation to use.
//!
//! Invariants
//! - If the user named a directory (`FOREBAY_PG_BIN`), no other directory is searched.
//! - Existing data is opened only by the major version that created it. Without data the newest version is used.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::Error;

/// The oldest version that supports Forebay's SQL.
pub(super) const OLDEST_MAJOR: u32 = 15;

/// Where packages install several versions: the parent directory, the prefix of a version's directory, and the
/// directory of the programs in that directory.
const PACKAGES: [(&str, &str, &str); 5] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql", "bin"),
    ("/usr/local/opt", "postgresql", "bin"),
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),
];

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Binaries {
    dir: PathBuf,
    major: u32,
}

impl Binaries {
    pub(super) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    /// The installation in this directory, if it has both programs and is new enough.
    fn in_dir(dir: &Path) -> Option<Binaries> {
        // Resolves a link such as /usr/local/bin/postgres, to find the directory that has all the programs.
        let real = dir.join("postgres").canonicalize().ok()?;
        let dir = [real.parent()?, dir].into_iter().find(|dir| dir.join("initdb").is_file())?.to_owned();
        let output = Command::new(dir.join("postgres")).arg("--version").stdin(Stdio::null()).output().ok()?;
        let major = parse_version(&String::from_utf8_lossy(&output.stdout))?;
        (major >= OLDEST_MAJOR).then_some(Binaries { dir, major })
    }
}

/// Chooses the PostgreSQL installation to run. If `given` is set, it is used and nothing is searched. `data_major` is
/// the major version of the data in `data_dir`, or None if there is no data yet.
pub(super) fn find(
    given: Option<&Path>,
    search_path: Option<&OsStr>,
    data_major: Option<u32>,
    data_dir: &Path,
) -> Result<Binaries, Error> {
    let found = match given {
        Some(dir) => vec![Binaries::in_dir(dir).ok_or_else(|| Error::NotInGivenDir { dir: dir.to_owned() })?],
        None => candidates(search_path).iter().filter_map(|dir| Binaries::in_dir(dir)).collect(),
    };
    choose(&found, data_major, data_dir)
}

fn choose(found: &[Binaries], data_major: Option<u32>, data_dir: &Path) -> Result<Binaries, Error> {
    // Of equal versions `max_by_key` returns the last, so the list is reversed: the directory searched first wins.
    let newest = found.iter().rev().max_by_key(|binaries| binaries.major).ok_or(Error::NotFound)?;
    let Some(data) = data_major else { return Ok(newest.clone()) };
    if let Some(same) = found.iter().find(|binaries| binaries.major == data) {
        return Ok(same.clone());
    }
    let mut majors: Vec<u32> = found.iter().map(|binaries| binaries.major).collect();
    majors.sort_unstable();
    majors.dedup();
    let found = majors.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    Err(Error::Version { data_dir: data_dir.to_owned(), data, found })
}

fn candidates(search_path: Option<&OsStr>) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        search_path.into_iter().flat_map(env::split_paths).filter(|dir| dir.is_absolute()).collect();
    for (parent, prefix, bin) in PACKAGES {
        let Ok(entries) = fs::read_dir(parent) else { continue };
        let named = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        dirs.extend(named.map(|entry| entry.path().join(bin)));
    }
    dirs
}

/// The major version in "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)" or "… 18beta1".
fn parse_version(line: &str) -> Option<u32> {
    let (_, version) = line.split_once("(PostgreSQL) ")?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_postgres_prints() {
        for (line, major) in [
            ("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n", Some(15)),
            ("postgres (PostgreSQL) 18beta1", Some(18)),
            ("postgres (PostgreSQL) devel", None),
            ("bash 5", None),
        ] {
            assert_eq!(parse_version(line), major, "{line}");
        }
    }

    #[test]
    fn data_chooses_its_own_version_and_no_data_the_newest() {
        let at = |dir: &str, major| Binaries { dir: dir.into(), major };
        let found = [at("/a", 15), at("/b", 17), at("/c", 17)];
        let choose = |found: &[Binaries], data| choose(found, data, Path::new("/data"));

        assert_eq!(choose(&found, None).expect("there are some"), at("/b", 17));
        assert_eq!(choose(&found, Some(15)).expect("there is one"), at("/a", 15));
        assert_eq!(
            choose(&found, Some(16)).expect_err("there is none").to_string(),
            "the data in /data is from PostgreSQL 16, but only 15, 17 is installed: \
             install PostgreSQL 16, or move the directory away to start with an empty database"
        );
        assert_eq!(
            choose(&[], Some(15)).expect_err("there are none").to_string(),
            "install PostgreSQL 15 or later (Debian: apt-get install postgresql), or pass --database-url"
        );
    }
}
