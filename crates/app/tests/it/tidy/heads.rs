//! The modules that the `Not here` paragraph of a file head names must exist.

use std::collections::{BTreeMap, BTreeSet};

use super::check;
use super::repository::{File, files};

/// Everything a head may name: crates, modules and functions, by the crate they are in.
struct Names<'a> {
    of_crate: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Names<'a> {
    fn read(files: &'a [File]) -> Names<'a> {
        let mut of_crate: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for file in files.iter().filter(|file| file.is_rust()) {
            let Some((owner, path)) = place(file) else { continue };
            let names = of_crate.entry(owner).or_default();
            names.extend(path.trim_end_matches(".rs").split('/'));
            names.extend(file.text.split("fn ").skip(1).map(word));
            names.extend(file.text.split("mod ").skip(1).map(word));
        }
        Names { of_crate }
    }

    /// `queue::claim` is looked for in the crate of the file, `store::queue::claim` in that crate.
    fn has(&self, owner: &str, path: &str) -> bool {
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        let first = first.replace('_', "-");
        match self.of_crate.get(first.as_str()) {
            Some(_) if rest.is_empty() => true,
            Some(names) if first != owner => rest.split("::").all(|part| names.contains(part)),
            _ => self.of_crate.get(owner).is_some_and(|names| {
                path.split("::").all(|part| ["crate", "super"].contains(&part) || names.contains(part))
            }),
        }
    }
}

/// The crate of a source file, and its path below `src`.
fn place(file: &File) -> Option<(&str, &str)> {
    let (owner, path) = file.path.split_once("/src/")?;
    Some((owner.rsplit('/').next()?, path))
}

fn word(text: &str) -> &str {
    text.split(|character: char| !(character.is_alphanumeric() || character == '_')).next().unwrap_or(text)
}

/// The modules that a head's last paragraph, `Not here`, names.
fn elsewhere(file: &File) -> Vec<String> {
    let head: Vec<&str> = file.text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let head = head.join(" ");
    let Some((_, elsewhere)) = head.split_once("Not here") else { return Vec::new() };
    let quoted = elsewhere.split('`').skip(1).step_by(2);
    let is_path = |name: &&str| name.chars().all(|one| one.is_ascii_lowercase() || one == '_' || one == ':');
    quoted.filter(is_path).map(str::to_owned).collect()
}

#[test]
fn what_a_head_says_is_elsewhere_is_there() {
    let files = files();
    let names = Names::read(&files);
    let mut gone = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some((owner, _)) = place(file) else { continue };
        let missing = elsewhere(file).into_iter().filter(|path| !names.has(owner, path));
        gone.extend(missing.map(|path| format!("{}: there is no {path}", file.path)));
    }
    check("name the module that does it, by its path in the crate", gone);
}
