//! Reads the files of this repository for the checks.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// One file that holds text.
#[derive(Debug)]
pub(super) struct File {
    /// From the repository's root, with `/` between its parts.
    pub(super) path: String,
    pub(super) text: String,
    pub(super) is_executable: bool,
}

impl File {
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(super) fn is_page(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// A test's own file, rather than code that ships.
    pub(super) fn is_test(&self) -> bool {
        self.path.contains("/tests/")
    }

    /// How many lines come before a source file's own tests.
    pub(super) fn lines_that_ship(&self) -> usize {
        self.text.lines().take_while(|line| *line != "#[cfg(test)]").count()
    }
}

/// Where the repository is.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text file, in the order of paths.
pub(super) fn files() -> Vec<File> {
    let mut found = Vec::new();
    walk(&root(), "", &mut found).expect("the repository can be read");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The text of one file that must be there.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn walk(directory: &Path, prefix: &str, found: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let (path, kind) = (format!("{prefix}{name}"), entry.file_type()?);
        if kind.is_dir() {
            // Build directories say so of themselves, wherever they are.
            if name != ".git" && !entry.path().join("CACHEDIR.TAG").exists() {
                walk(&entry.path(), &format!("{path}/"), found)?;
            }
        } else if kind.is_file()
            && name != "Cargo.lock"
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            found.push(File { path, text, is_executable: is_executable(&entry.path())? });
        }
    }
    Ok(())
}

fn is_executable(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::metadata(path)?.permissions().mode() & 0o111 != 0)
}
