//! Workflows from files: checked here, published there.
//!
//! Invariants
//! - `validate` needs no server. `apply` lets the server judge: it may know more kinds than we do.
//! - Every file is read and every problem told; nothing is published unless all files are good.
//!
//! Not here: reading files (`client::document`), the rules (`kernel::definition::parse`).

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use kernel::definition::Definition;
use kernel::definition::plan::Plan;
use kernel::definition::{parse, source};
use kernel::ids::{DefinitionId, WorkspaceId};
use serde::Serialize;
use serde_json::Value;
use server::wire;

use super::api::{Answer, Query};
use super::connection::{Format, Place, Session, Shown};
use super::document::draw::draw;
use super::document::{Document, Finding};
use super::{Act, api};
use crate::exit::{Exit, Rejected, missing, settle, usage};
use crate::output::{self, Look, clean};

/// Check workflow files without a server
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every file is read, and every problem told with its line and column and drawn under its line. With -o json each has a \
stable code, its place, and what was probably meant.

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

A workflow is known by its name: the file's `name:`, or else the file's own name. Executions that have started keep \
the \
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
            Format::Table => {
                let told = |(checked, read): (&Checked, &Read)| told(checked, text(read), self.shown.stdout());
                all.iter().zip(&read).map(told).try_for_each(output::line)?;
                tally(&all).map_or(Ok(()), output::line)?;
            }
        }
        Ok(match valid {
            true => Exit::Done,
            false if read.iter().any(|(_, document)| document.is_err()) => Exit::Usage,
            false => Exit::Error,
        })
    }
}

/// Prints the schema of the documents that this build reads.
pub(super) fn schema() -> anyhow::Result<Exit> {
    output::value(&parse::schema::workflow())?;
    Ok(Exit::Done)
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
                Err(findings) => problems.extend(findings.into_iter().map(|finding| (document, finding))),
            }
        }
        problems.extend(same_names(&all));
        for Submission { read, body, .. } in &all {
            let judged: Result<Answer<wire::Validated>, _> =
                session.api.post("workflow/definitions/validate", body).await;
            match judged {
                Err(error) if error.status() == Some(422) => {
                    problems.extend(refused(&error).into_iter().map(|finding| (*read, finding)));
                }
                // What is known to be wrong already is worth more than why the rest could not be judged.
                Err(_) if !problems.is_empty() => break,
                judged => drop(judged.with_context(|| format!("check {}", read.0))?),
            }
        }
        if !problems.is_empty() {
            return Err(rejected(&problems, "nothing was published: every file must be good", session.stderr)?.into());
        }
        for Submission { read, body, .. } in all {
            let applied: Result<Answer<wire::Applied>, _> = session.api.post("workflow/definitions/apply", &body).await;
            let applied = applied.with_context(|| format!("apply {}", read.0))?;
            session.show(&applied, |applied| output::line(published(applied)))?;
        }
        Ok(Exit::Done)
    }
}

/// What a file is sent as: its text, so that the server's findings have their lines.
#[derive(Debug)]
struct Submission<'r> {
    read: &'r Read,
    name: String,
    body: wire::SubmitDefinition,
}

fn submission(read: &Read, workspace_id: Option<WorkspaceId>) -> Result<Submission<'_>, Vec<Finding>> {
    let document = read.1.as_ref().map_err(|error| vec![Finding::plain(error)])?;
    let source = source::read(&document.text);
    if !source.problems.is_empty() {
        // Of what can be read no less is told than `validate` does.
        return Err(check(document).problems);
    }
    let own = source.value.as_ref().and_then(|value| value.get("name")).filter(|name| !name.is_null());
    let given = if own.is_some() { None } else { document.stem() };
    let name = own.and_then(Value::as_str).map(str::to_owned).or_else(|| given.clone());
    if own.is_none() && given.is_none() {
        return Err(vec![Finding::plain("it has no name: put `name:` at the top")]);
    }
    let source = Some(document.text.clone());
    let body = wire::SubmitDefinition { document: None, name: given, source, workspace_id };
    Ok(Submission { read, name: name.unwrap_or_default(), body })
}

/// Files that would be versions of one another.
fn same_names<'r>(all: &[Submission<'r>]) -> Vec<(&'r Read, Finding)> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    let mut twice = Vec::new();
    for Submission { read, name, .. } in all.iter().filter(|one| !one.name.is_empty()) {
        if let Some(first) = seen.insert(name, &read.0) {
            twice.push((*read, Finding::plain(&format!("it is called {name}, as {first} is"))));
        }
    }
    twice
}

fn rejected(problems: &[(&Read, Finding)], undone: &'static str, look: Look) -> anyhow::Result<Rejected> {
    let mut rejected = Rejected { lines: Vec::new(), problems: Vec::new(), undone };
    for (read, finding) in problems {
        rejected.lines.push(draw(&read.0, text(read), finding, look));
        let mut value = serde_json::to_value(finding)?;
        value["file"] = serde_json::json!(read.0);
        rejected.problems.push(value);
    }
    Ok(rejected)
}

/// The id of the definition that a name or an id means, if one is given.
pub(super) async fn find_id(
    session: &Session,
    workflow: Option<&str>,
    place: &Place,
) -> anyhow::Result<Option<DefinitionId>> {
    match workflow {
        Some(workflow) => Ok(Some(find(session, workflow, place).await?.id)),
        None => Ok(None),
    }
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

fn text(read: &Read) -> Option<&str> {
    read.1.as_ref().ok().map(|document| document.text.as_str())
}

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

const NOT_DRAWN: &str = "nothing was drawn: the file must be good";

/// The graph of a file; or all that is wrong with it, drawn.
pub(super) fn graph_of(file: &str, look: Look) -> anyhow::Result<(Definition, Plan)> {
    let read = load(&[file.to_owned()])?.remove(0);
    let document = match &read.1 {
        Ok(document) => document,
        Err(error) => return Err(rejected(&[(&read, Finding::plain(error))], NOT_DRAWN, look)?.into()),
    };
    match parse::check_text(&document.text) {
        Ok((definition, plan)) => {
            let name = definition.name.clone().or_else(|| document.stem());
            Ok((Definition { name, ..definition }, plan))
        }
        Err(problems) => {
            let found: Vec<_> = problems.into_iter().map(|problem| (&read, Finding::from(problem))).collect();
            Err(rejected(&found, NOT_DRAWN, look)?.into())
        }
    }
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
    match parse::check_text(&document.text) {
        Ok((definition, _)) => Checked {
            file,
            valid: true,
            nodes: definition.nodes.len(),
            edges: definition.edges.len(),
            name: definition.name.or_else(|| document.stem()),
            problems: Vec::new(),
        },
        Err(problems) => {
            let problems = problems.into_iter().map(Finding::from).collect();
            Checked { file, valid: false, name: None, nodes: 0, edges: 0, problems }
        }
    }
}

/// A file in words: that it is good, or all that is wrong with it.
fn told(checked: &Checked, text: Option<&str>, look: Look) -> String {
    if checked.valid {
        let name = checked.name.as_deref().map(|name| format!(" {}", clean(name))).unwrap_or_default();
        return format!("{}: valid:{name}, nodes: {}, edges: {}", checked.file, checked.nodes, checked.edges);
    }
    let drawn = checked.problems.iter().map(|finding| draw(&checked.file, text, finding, look));
    drawn.collect::<Vec<_>>().join("\n")
}

/// How many files are good, where one does not see it at once.
fn tally(all: &[Checked]) -> Option<String> {
    let valid = all.iter().filter(|checked| checked.valid).count();
    let problems: usize = all.iter().map(|checked| checked.problems.len()).sum();
    (all.len() > 1 || problems > 0).then(|| format!("files: {}, valid: {valid}, problems: {problems}", all.len()))
}

fn published(applied: &wire::Applied) -> String {
    let name = clean(&applied.definition.name);
    let what = if applied.unchanged { "unchanged" } else { "published" };
    let paused = if applied.definition.status == "PAUSED" { " (paused: what is started waits)" } else { "" };
    format!("{name}: version {} {what}{paused}", applied.version)
}

fn refused(error: &api::Error) -> Vec<Finding> {
    match error.problems() {
        [] => vec![Finding::plain(&error.to_string())],
        problems => problems.iter().cloned().map(Finding::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn validate(text: &str, expected: Expect) {
        let document = Document { file: "flow.yaml".to_owned(), text: text.to_owned() };
        expected.assert_eq(&told(&check(&document), Some(text), Look::PLAIN));
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
    fn a_count_is_told_where_it_is_not_seen_at_once() {
        let check = |text: &str| check(&Document { file: "flow.yaml".to_owned(), text: text.to_owned() });
        let (good, bad) = (|| check("nodes: {}"), || check("nme: x\nnodes: {b: {}}"));
        assert_eq!(tally(&[good()]), None);
        assert_eq!(tally(&[good(), good()]).as_deref(), Some("files: 2, valid: 2, problems: 0"));
        assert_eq!(tally(&[bad(), good()]).as_deref(), Some("files: 2, valid: 1, problems: 2"));
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
            seen.push_str(&format!("{}\n", told(&checked, None, Look::PLAIN)));
        }
        expect![[r#"
            approve-refund.yaml: valid: approve-refund, nodes: 4, edges: 3
            book-trip.yaml: valid: book-trip, nodes: 5, edges: 5
            bootstrap.yaml: valid: organization-bootstrap, nodes: 2, edges: 1
            branches.yaml: valid: branches, nodes: 5, edges: 5
            clean-bucket.yaml: valid: clean-bucket, nodes: 1, edges: 0
            create-account.yaml: valid: create-account, nodes: 1, edges: 0
            enrich-order.yaml: valid: enrich-order, nodes: 6, edges: 7
            failure.yaml: valid: failure, nodes: 6, edges: 6
            hello.yaml: valid: hello, nodes: 1, edges: 0
            make-thumbnail.yaml: valid: make-thumbnail, nodes: 1, edges: 0
            nightly-cleanup.yaml: valid: nightly-cleanup, nodes: 1, edges: 0
            notify-subscribers.yaml: valid: notify-subscribers, nodes: 2, edges: 1
            onboard-customer.yaml: valid: onboard-customer, nodes: 3, edges: 2
            orders.yaml: valid: orders, nodes: 4, edges: 3
            patience.yaml: valid: patience, nodes: 5, edges: 6
            poll-export.yaml: valid: poll-export, nodes: 3, edges: 2
            route-ticket.yaml: valid: route-ticket, nodes: 6, edges: 7
            sales-report.yaml: valid: sales-report, nodes: 4, edges: 3
            sync-contacts.yaml: valid: sync-contacts, nodes: 3, edges: 2
        "#]]
        .assert_eq(&seen);
    }
}
