//! Workflows from files: checked here, published there.
//!
//! Invariants
//! - `validate` needs no server. `apply` lets the server judge: it may know more kinds than we do.
//! - Every file is read and every problem told; nothing is published unless all files are good.
//!
//! Not here: reading files (`client::document`), the rules (`kernel::parse`).

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::parse;
use serde::Serialize;
use serde_json::Value;
use server::wire;

use super::api::{Answer, Query};
use super::connection::{Format, Place, Session, Shown};
use super::document::{Document, Finding};
use super::{Act, api};
use crate::exit::{Exit, Rejected, missing, settle, usage};
use crate::output::{self, clean};

/// Check workflow files without a server
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every file is read and every problem told, as FILE:LINE:COLUMN: for slips of syntax and with a JSON pointer for the rest.

Examples:
  forebay validate examples/*.yaml
  cat workflow.yaml | forebay validate -")]
pub(crate) struct Validate {
    /// YAML or JSON; - reads stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    shown: Shown,
}

/// Publish workflow files: a new version of each that changed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
All files are checked first, by the server too, and every problem is told. Nothing is published unless all of them are \
good.

A workflow is known by its name: the file's `name:`, or else the file's own name. Executions that have started keep the \
version they started with.

Examples:
  forebay apply examples/hello.yaml
  forebay apply workflows/*.yaml --workspace acme")]
pub(crate) struct Apply {
    /// YAML or JSON; - reads stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    place: Place,
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
    pub(super) fn run(self) -> Exit {
        settle(self.carry_out(), self.shown.format())
    }

    fn carry_out(&self) -> anyhow::Result<Exit> {
        let read = load(&self.files)?;
        let all: Vec<Checked> = read.iter().map(check_read).collect();
        let valid = all.iter().all(|checked| checked.valid);
        match self.shown.format() {
            Format::Json => {
                let body = serde_json::to_string(&serde_json::json!({ "valid": valid, "files": all }))?;
                output::json(&body, self.shown.stdout())?;
            }
            Format::Table => all.iter().flat_map(lines).try_for_each(output::line)?,
        }
        Ok(match valid {
            true => Exit::Done,
            false if read.iter().any(|(_, document)| document.is_err()) => Exit::Usage,
            false => Exit::Error,
        })
    }
}

impl Act for Apply {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let read = load(&self.files)?;
        let workspace_id = session.workspace(&self.place).await?;
        let mut problems = Vec::new();
        let mut all = Vec::new();
        for document in &read {
            match submission(document, workspace_id) {
                Ok(submission) => all.push(submission),
                Err(finding) => problems.push((document.0.as_str(), finding)),
            }
        }
        problems.extend(same_names(&all));
        for (file, body) in &all {
            let judged: Result<Answer<wire::Validated>, _> =
                session.api.post("workflow/definitions/validate", body).await;
            match judged {
                Err(error) if error.status() == Some(422) => {
                    problems.extend(refused(&error).into_iter().map(|finding| (file.as_str(), finding)));
                }
                // What is known to be wrong already is worth more than why the rest could not be judged.
                Err(_) if !problems.is_empty() => break,
                judged => drop(judged.with_context(|| format!("check {file}"))?),
            }
        }
        if !problems.is_empty() {
            return Err(rejected(&problems)?.into());
        }
        for (file, body) in all {
            let applied: Answer<wire::Applied> =
                session.api.post("workflow/definitions/apply", &body).await.with_context(|| format!("apply {file}"))?;
            session.show(&applied, |applied| output::line(told(applied)))?;
        }
        Ok(Exit::Done)
    }
}

/// What a file is sent as.
type Submission = (String, wire::SubmitDefinition);

fn submission(read: &Read, workspace_id: Option<WorkspaceId>) -> Result<Submission, Finding> {
    let document = read.1.as_ref().map_err(|error| Finding::plain(error))?;
    let value = document.parse()?;
    let has_name = value.get("name").is_some_and(|name| !name.is_null());
    let name = if has_name { None } else { document.stem() };
    if !has_name && name.is_none() {
        return Err(Finding::plain("it has no name: put `name:` at the top"));
    }
    let source = Some(document.text.clone());
    Ok((read.0.clone(), wire::SubmitDefinition { document: value, name, source, workspace_id }))
}

/// Files that would be versions of one another.
fn same_names(all: &[Submission]) -> Vec<(&str, Finding)> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    let mut twice = Vec::new();
    for (file, body) in all {
        let Some(name) = body.name.as_deref().or_else(|| body.document.get("name").and_then(Value::as_str)) else {
            continue;
        };
        if let Some(first) = seen.insert(name, file) {
            twice.push((file.as_str(), Finding::plain(&format!("it is called {name}, as {first} is"))));
        }
    }
    twice
}

fn rejected(problems: &[(&str, Finding)]) -> anyhow::Result<Rejected> {
    let mut rejected = Rejected { lines: Vec::new(), problems: Vec::new() };
    for (file, finding) in problems {
        rejected.lines.push(format!("{file}:{finding}"));
        let mut value = serde_json::to_value(finding)?;
        value["file"] = serde_json::json!(file);
        rejected.problems.push(value);
    }
    Ok(rejected)
}

/// The definition that a name or an id means.
pub(super) async fn find(session: &Session, workflow: &str, place: &Place) -> anyhow::Result<wire::Definition> {
    if let Ok(id) = workflow.parse::<DefinitionId>() {
        let answer: Answer<wire::Definition> =
            session.api.get(&format!("workflow/definitions/{id}"), &[]).await.context("find the workflow")?;
        return Ok(answer.value);
    }
    let workspace = session.workspace(place).await?.map(|id| id.to_string());
    let mut query = vec![("name", workflow)];
    query.extend(workspace.as_deref().map(|id| ("workspaceId", id)));
    let query: Query<'_> = &query;
    let page: Answer<wire::Page<wire::Definition>> =
        session.api.get("workflow/definitions", query).await.with_context(|| format!("find workflow {workflow}"))?;
    let mut found: Vec<wire::Definition> = page.value.items.into_iter().filter(|item| item.name == workflow).collect();
    match found.len() {
        0 => {
            let list = session.hint(&["workflow", "ls"]);
            Err(missing(format!("there is no workflow {workflow} here; list them: {list}")))
        }
        1 => Ok(found.swap_remove(0)),
        many => bail!("{many} workspaces have a workflow {workflow}: say which with --workspace"),
    }
}

/// A file's name in messages, and what is in it or why it cannot be read.
type Read = (String, Result<Document, String>);

fn load(files: &[String]) -> anyhow::Result<Vec<Read>> {
    if files.iter().filter(|file| *file == "-").count() > 1 {
        return Err(usage("stdin (-) can be read only once"));
    }
    let load = |file: &String| match Document::load(file) {
        Ok(document) => (document.shown().to_owned(), Ok(document)),
        Err(error) => (file.clone(), Err(format!("cannot be read: {}", error.root_cause()))),
    };
    Ok(files.iter().map(load).collect())
}

fn check_read(read: &Read) -> Checked {
    match &read.1 {
        Ok(document) => check(document),
        Err(error) => {
            let (file, problems) = (read.0.clone(), vec![Finding::plain(error)]);
            Checked { file, valid: false, name: None, nodes: 0, edges: 0, problems }
        }
    }
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

fn refused(error: &api::Error) -> Vec<Finding> {
    match error.problems() {
        [] => vec![Finding::plain(&error.to_string())],
        problems => problems.iter().map(Finding::from).collect(),
    }
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
            bootstrap.yaml: valid: organization-bootstrap, nodes: 2, edges: 1
            branches.yaml: valid: branches, nodes: 5, edges: 5
            failure.yaml: valid: failure, nodes: 6, edges: 6
            hello.yaml: valid: hello, nodes: 1, edges: 0
            orders.yaml: valid: orders, nodes: 4, edges: 3
            patience.yaml: valid: patience, nodes: 5, edges: 6
        "#]]
        .assert_eq(&seen);
    }
}
