//! Workflows from files: checked here, published there.
//!
//! Invariants
//! - `validate` needs no server. `apply` lets the server judge: it may know more kinds than we do.
//! - A file that cannot be read stops `apply` before anything is published.
//!
//! Not here: reading files (`client::document`), the rules (`kernel::parse`).

use anyhow::{Context, bail};
use kernel::ids::DefinitionId;
use kernel::parse;
use serde::Serialize;
use serde_json::Value;
use server::wire;

use super::Exit;
use super::api::{Answer, Query};
use super::connection::{Connection, Format, Session};
use super::document::{Document, Finding};
use crate::output::{self, clean};

/// Check workflow files without a server
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every problem is told, as FILE:LINE:COLUMN: for slips of syntax and with a JSON pointer for the rest.

Examples:
  forebay validate examples/*.yaml
  cat workflow.yaml | forebay validate -")]
pub(crate) struct Validate {
    /// YAML or JSON; - reads stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

/// Publish workflow files: a new version of each that changed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A workflow is known by its name: the file's `name:`, or else the file's own name. Executions that have
started keep the version they started with.

Examples:
  forebay apply examples/hello.yaml
  forebay apply workflows/*.yaml --workspace acme")]
pub(crate) struct Apply {
    /// YAML or JSON; - reads stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

/// What was found in one file.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    nodes: usize,
    edges: usize,
    problems: Vec<Finding>,
}

impl Validate {
    pub(super) fn run(self, connection: &Connection) -> anyhow::Result<Exit> {
        let documents = load(&self.files)?;
        let all: Vec<Checked> = documents.iter().map(check).collect();
        let valid = all.iter().all(|checked| checked.valid);
        match connection.format() {
            Format::Json => {
                let body = serde_json::to_string(&serde_json::json!({ "valid": valid, "files": all }))?;
                output::json(&body, connection.stdout())?;
            }
            Format::Table => all.iter().flat_map(lines).try_for_each(output::line)?,
        }
        Ok(if valid { Exit::Done } else { Exit::Error })
    }
}

impl Apply {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<Exit> {
        let documents = load(&self.files)?;
        let mut read = Vec::new();
        let mut exit = Exit::Done;
        for document in &documents {
            match document.parse() {
                Ok(value) => read.push((document, value)),
                Err(finding) => {
                    output::note(format!("{}:{finding}", document.shown()))?;
                    exit = Exit::Error;
                }
            }
        }
        if exit != Exit::Done {
            return Ok(exit);
        }
        let workspace_id = session.workspace().await?;
        for (document, value) in read {
            let name = if value.get("name").is_none_or(Value::is_null) { document.stem() } else { None };
            let source = Some(document.text.clone());
            let body = wire::SubmitDefinition { document: value, name, source, workspace_id };
            let applied: Result<Answer<wire::Applied>, _> = session.api.post("workflow/definitions/apply", &body).await;
            match applied {
                Ok(applied) => session.show(&applied, |applied| output::line(told(applied)))?,
                // The next file may be better.
                Err(error) if error.status() == Some(422) => {
                    refused(document.shown(), &error)?;
                    exit = Exit::Error;
                }
                Err(error) => return Err(error).with_context(|| format!("apply {}", document.shown())),
            }
        }
        Ok(exit)
    }
}

/// The definition that a name or an id means.
pub(super) async fn find(session: &Session, workflow: &str) -> anyhow::Result<wire::Definition> {
    if let Ok(id) = workflow.parse::<DefinitionId>() {
        let answer: Answer<wire::Definition> =
            session.api.get(&format!("workflow/definitions/{id}"), &[]).await.context("find the workflow")?;
        return Ok(answer.value);
    }
    let workspace = session.workspace().await?.map(|id| id.to_string());
    let mut query = vec![("name", workflow)];
    query.extend(workspace.as_deref().map(|id| ("workspaceId", id)));
    let query: Query<'_> = &query;
    let task = || match &workspace {
        Some(_) => format!("find workflow {workflow}"),
        None => format!("find workflow {workflow} (with the root key, give --workspace)"),
    };
    let page: Answer<wire::Page<wire::Definition>> =
        session.api.get("workflow/definitions", query).await.with_context(task)?;
    let mut found: Vec<wire::Definition> = page.value.items.into_iter().filter(|item| item.name == workflow).collect();
    match found.len() {
        0 => bail!("there is no workflow {workflow} here; publish one with `forebay apply FILE`"),
        1 => Ok(found.swap_remove(0)),
        many => bail!("{many} workspaces have a workflow {workflow}: say which with --workspace"),
    }
}

fn load(files: &[String]) -> anyhow::Result<Vec<Document>> {
    if files.iter().filter(|file| *file == "-").count() > 1 {
        bail!("stdin (-) can be read only once");
    }
    files.iter().map(|file| Document::load(file)).collect()
}

fn check(document: &Document) -> Checked {
    let file = document.shown().to_owned();
    let refused = |problems| Checked { file: file.clone(), valid: false, name: None, nodes: 0, edges: 0, problems };
    let value = match document.parse() {
        Ok(value) => value,
        Err(finding) => return refused(vec![finding]),
    };
    match parse::check(&value) {
        Ok((definition, _)) => Checked {
            file,
            valid: true,
            nodes: definition.nodes.len(),
            edges: definition.edges.len(),
            name: definition.name.or_else(|| document.stem()),
            problems: Vec::new(),
        },
        Err(problems) => refused(problems.iter().map(Finding::from).collect()),
    }
}

fn lines(checked: &Checked) -> Vec<String> {
    if checked.valid {
        let name = checked.name.as_deref().map(|name| format!(" {}", clean(name))).unwrap_or_default();
        return vec![format!("{}: valid:{name}, nodes: {}, edges: {}", checked.file, checked.nodes, checked.edges)];
    }
    checked.problems.iter().map(|finding| format!("{}:{finding}", checked.file)).collect()
}

fn told(applied: &wire::Applied) -> String {
    let name = clean(&applied.definition.name);
    let what = if applied.unchanged { "unchanged" } else { "published" };
    let paused = if applied.definition.status == "PAUSED" { " (paused: what is started waits)" } else { "" };
    format!("{name}: version {} {what}{paused}", applied.version)
}

fn refused(file: &str, error: &super::api::Error) -> anyhow::Result<()> {
    if error.problems().is_empty() {
        return output::note(format!("{file}: {}", clean(&error.to_string())));
    }
    error.problems().iter().map(Finding::from).try_for_each(|finding| output::note(format!("{file}:{finding}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn validate(text: &str, expected: Expect) {
        let document = Document { file: "flow.yaml".to_owned(), text: text.to_owned() };
        expected.assert_eq(&lines(&check(&document)).join("\n"));
    }

    #[test]
    fn a_good_file_is_told_with_its_size() {
        validate(
            "name: two\nnodes:\n  a: {kind: LOG, with: {message: hi}}\n  b: {kind: DELAY, needs: a, with: {for: 5s}}\n",
            expect!["flow.yaml: valid: two, nodes: 2, edges: 1"],
        );
        validate("nodes: {}", expect!["flow.yaml: valid: flow, nodes: 0, edges: 0"]);
    }

    #[test]
    fn every_problem_is_a_line() {
        validate("nodes:\n  a: [kind: LOG\n", expect!["flow.yaml:2:6: unclosed bracket '['"]);
        validate("", expect!["flow.yaml: must be an object, not null"]);
        validate(
            "nme: x\nnodes:\n  a: {type: LOG}\n  b: {kind: DELAY, needs: [a, c], with: {for: 5}}\n  \"d\\e[2J\": {}\n",
            expect![[r#"
                flow.yaml: /nme: unknown field nme, did you mean name?
                flow.yaml: /nodes/a/type: unknown field type, did you mean kind?
                flow.yaml: /nodes/a: kind is missing
                flow.yaml: /nodes/b/with/for: must be a duration such as 5s, 1m30s or 250ms, not a number
                flow.yaml: /nodes/d: "d\u{1b}[2J" is not a name: use 1 to 64 letters, digits, '_' or '-', starting with a letter or '_'
                flow.yaml: /nodes/d: kind is missing
                flow.yaml: /nodes/b/needs/1: unknown node c: use one of a, b"#]],
        );
    }

    #[test]
    fn the_examples_are_valid() {
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let mut files: Vec<String> = std::fs::read_dir(examples)
            .expect("the examples")
            .map(|entry| entry.expect("an entry").path().display().to_string())
            .filter(|path| path.ends_with(".yaml"))
            .collect();
        files.sort();
        let checked = files.iter().map(|file| check(&Document::load(file).expect("a file")));
        let mut seen = String::new();
        for mut checked in checked {
            checked.file = checked.file.rsplit('/').next().unwrap_or_default().to_owned();
            lines(&checked).iter().for_each(|line| seen.push_str(&format!("{line}\n")));
        }
        expect![[r#"
            branches.yaml: valid: branches, nodes: 5, edges: 5
            failure.yaml: valid: failure, nodes: 6, edges: 6
            hello.yaml: valid: hello, nodes: 1, edges: 0
            orders.yaml: valid: orders, nodes: 4, edges: 3
            patience.yaml: valid: patience, nodes: 5, edges: 6
        "#]]
        .assert_eq(&seen);
    }
}
