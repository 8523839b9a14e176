//! `validate` and `apply`: checks workflow files and publishes them.
//!
//! Invariants
//! - `validate` needs no server. For `apply` the server checks the files, because its version may know other node kinds
//!   than this program.
//! - Every file is read and every problem is reported. Nothing is published unless all files are valid.
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
use super::connection::{Format, OutputArgs, Session, WorkspaceArg};
use super::document::draw::draw;
use super::document::{Document, Finding};
use super::{Execute, api};
use crate::exit::{Exit, Rejected, not_found_error, report_result, usage_error};
use crate::output::{self, StreamStyle, clean};

/// Check workflow files without a server
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every file is read, and every problem is shown under its line of the file. With -o json each problem has a stable \
code, its position, and a suggestion if there is one.

Examples:
  forebay validate examples/*.yaml
  cat workflow.yaml | forebay validate -")]
pub(crate) struct ValidateArgs {
    /// The files, in YAML or JSON; - reads stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Publish workflow files: each changed workflow gets a new version
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The server checks all files first, and every problem is reported. Nothing is published unless all files are valid.

A workflow is identified by its name: `name:` in the file, else the name of the file. Executions that have started \
keep their version.

Examples:
  forebay apply examples/hello.yaml
  forebay apply workflows/*.yaml --workspace acme")]
pub(crate) struct ApplyArgs {
    /// The files, in YAML or JSON; - reads stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// The result of checking one file.
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

impl ValidateArgs {
    pub(super) fn run(self) -> Exit {
        report_result(self.carry_out(), self.output.format())
    }

    fn carry_out(&self) -> anyhow::Result<Exit> {
        let read = load(&self.files)?;
        let all: Vec<Checked> = read.iter().map(check_read).collect();
        let valid = all.iter().all(|checked| checked.valid);
        match self.output.format() {
            Format::Json => {
                let body = serde_json::to_string(&serde_json::json!({ "valid": valid, "files": all }))?;
                output::print_json(&body, self.output.stdout())?;
            }
            Format::Table => {
                let describe_one =
                    |(checked, read): (&Checked, &LoadedFile)| describe(checked, text(read), self.output.stdout());
                all.iter().zip(&read).map(describe_one).try_for_each(output::print_line)?;
                tally(&all).map_or(Ok(()), output::print_line)?;
            }
        }
        Ok(match valid {
            true => Exit::Done,
            false if read.iter().any(|(_, document)| document.is_err()) => Exit::Usage,
            false => Exit::Error,
        })
    }
}

/// Prints the JSON Schema of the workflow files that this build reads.
pub(super) fn schema() -> anyhow::Result<Exit> {
    output::print_value(&parse::schema::workflow())?;
    Ok(Exit::Done)
}

impl Execute for ApplyArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let read = load(&self.files)?;
        let workspace_id = session.workspace(&self.workspace).await?;
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
            let judged: Result<Answer<wire::ValidatedDefinition>, _> =
                session.api.post("workflow/definitions/validate", body).await;
            match judged {
                Err(error) if error.status() == Some(422) => {
                    problems.extend(refused(&error).into_iter().map(|finding| (*read, finding)));
                }
                // Report the problems found so far. They are more useful than why the other files were not checked.
                Err(_) if !problems.is_empty() => break,
                judged => drop(judged.with_context(|| format!("check {}", read.0))?),
            }
        }
        if !problems.is_empty() {
            return Err(rejected(&problems, "nothing was published: every file must be valid", session.stderr)?.into());
        }
        for Submission { read, body, .. } in all {
            let applied: Result<Answer<wire::AppliedDefinition>, _> =
                session.api.post("workflow/definitions/apply", &body).await;
            let applied = applied.with_context(|| format!("apply {}", read.0))?;
            session.show(&applied, |applied| output::print_line(describe_published(applied)))?;
        }
        Ok(Exit::Done)
    }
}

/// The request for one file. It holds the text, so that the server reports problems with their lines.
#[derive(Debug)]
struct Submission<'r> {
    read: &'r LoadedFile,
    name: String,
    body: wire::SubmitDefinition,
}

fn submission(read: &LoadedFile, workspace_id: Option<WorkspaceId>) -> Result<Submission<'_>, Vec<Finding>> {
    let document = read.1.as_ref().map_err(|error| vec![Finding::plain(error)])?;
    let source = source::read(&document.text);
    if !source.problems.is_empty() {
        // Report the same problems as `validate` does.
        return Err(check(document).problems);
    }
    let own = source.value.as_ref().and_then(|value| value.get("name")).filter(|name| !name.is_null());
    let given = if own.is_some() { None } else { document.stem() };
    let name = own.and_then(Value::as_str).map(str::to_owned).or_else(|| given.clone());
    if own.is_none() && given.is_none() {
        return Err(vec![Finding::plain("the workflow has no name: write `name:` at the top")]);
    }
    let source = Some(document.text.clone());
    let body = wire::SubmitDefinition { document: None, name: given, source, workspace_id };
    Ok(Submission { read, name: name.unwrap_or_default(), body })
}

/// The files that name the same workflow as an earlier file, each with a problem that says so.
fn same_names<'r>(all: &[Submission<'r>]) -> Vec<(&'r LoadedFile, Finding)> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    let mut twice = Vec::new();
    for Submission { read, name, .. } in all.iter().filter(|one| !one.name.is_empty()) {
        if let Some(first) = seen.insert(name, &read.0) {
            twice.push((
                *read,
                Finding::plain(&format!("{first} has the same workflow name, {name}: give each workflow its own name")),
            ));
        }
    }
    twice
}

fn rejected(problems: &[(&LoadedFile, Finding)], undone: &'static str, style: StreamStyle) -> anyhow::Result<Rejected> {
    let mut rejected = Rejected { lines: Vec::new(), problems: Vec::new(), undone };
    for (read, finding) in problems {
        rejected.lines.push(draw(&read.0, text(read), finding, style));
        let mut value = serde_json::to_value(finding)?;
        value["file"] = serde_json::json!(read.0);
        rejected.problems.push(value);
    }
    Ok(rejected)
}

/// The id of the workflow that is given by name or id, if one is given.
pub(super) async fn find_id(
    session: &Session,
    workflow: Option<&str>,
    workspace: &WorkspaceArg,
) -> anyhow::Result<Option<DefinitionId>> {
    match workflow {
        Some(workflow) => Ok(Some(find(session, workflow, workspace).await?.id)),
        None => Ok(None),
    }
}

/// The workflow that is given by name or id.
pub(super) async fn find(
    session: &Session,
    workflow: &str,
    workspace: &WorkspaceArg,
) -> anyhow::Result<wire::Definition> {
    if let Ok(id) = workflow.parse::<DefinitionId>() {
        let answer: Answer<wire::Definition> =
            session.api.get(&format!("workflow/definitions/{id}"), &[]).await.context("find the workflow")?;
        return Ok(answer.value);
    }
    let workspace = session.workspace(workspace).await?.map(|id| id.to_string());
    let mut query = vec![("name", workflow)];
    query.extend(workspace.as_deref().map(|id| ("workspaceId", id)));
    let query: Query<'_> = &query;
    let page: Answer<wire::Page<wire::Definition>> =
        session.api.get("workflow/definitions", query).await.with_context(|| format!("find workflow {workflow}"))?;
    let mut found: Vec<wire::Definition> = page.value.items.into_iter().filter(|item| item.name == workflow).collect();
    match found.len() {
        0 => {
            let list = session.hint(&["workflow", "ls"]);
            Err(not_found_error(format!("there is no workflow {workflow}; list workflows: {list}")))
        }
        1 => Ok(found.swap_remove(0)),
        many => bail!("{many} workspaces have a workflow {workflow}: name one with --workspace"),
    }
}

/// A file's name for messages, and its document or the reason why it cannot be read.
type LoadedFile = (String, Result<Document, String>);

fn text(read: &LoadedFile) -> Option<&str> {
    read.1.as_ref().ok().map(|document| document.text.as_str())
}

fn load(files: &[String]) -> anyhow::Result<Vec<LoadedFile>> {
    if files.iter().filter(|file| *file == "-").count() > 1 {
        return Err(usage_error("stdin (-) can be given only once"));
    }
    let load = |file: &String| match Document::load(file) {
        Ok(document) => (document.shown().to_owned(), Ok(document)),
        Err(error) => (file.clone(), Err(format!("cannot be read: {}", error.root_cause()))),
    };
    Ok(files.iter().map(load).collect())
}

const NOT_DRAWN: &str = "nothing was drawn: the file must be valid";

/// The graph of a file, or all its problems.
pub(super) fn graph_of(file: &str, style: StreamStyle) -> anyhow::Result<(Definition, Plan)> {
    let read = load(&[file.to_owned()])?.remove(0);
    let document = match &read.1 {
        Ok(document) => document,
        Err(error) => return Err(rejected(&[(&read, Finding::plain(error))], NOT_DRAWN, style)?.into()),
    };
    match parse::check_text(&document.text) {
        Ok((definition, plan)) => {
            let name = definition.name.clone().or_else(|| document.stem());
            Ok((Definition { name, ..definition }, plan))
        }
        Err(problems) => {
            let found: Vec<_> = problems.into_iter().map(|problem| (&read, Finding::from(problem))).collect();
            Err(rejected(&found, NOT_DRAWN, style)?.into())
        }
    }
}

fn check_read(read: &LoadedFile) -> Checked {
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

/// The result for one file as text: valid, or all its problems.
fn describe(checked: &Checked, text: Option<&str>, style: StreamStyle) -> String {
    if checked.valid {
        let name = checked.name.as_deref().map(|name| format!(" {}", clean(name))).unwrap_or_default();
        return format!("{}: valid:{name}, nodes: {}, edges: {}", checked.file, checked.nodes, checked.edges);
    }
    let drawn = checked.problems.iter().map(|finding| draw(&checked.file, text, finding, style));
    drawn.collect::<Vec<_>>().join("\n")
}

/// How many files are valid, if there are several files or any problem.
fn tally(all: &[Checked]) -> Option<String> {
    let valid = all.iter().filter(|checked| checked.valid).count();
    let problems: usize = all.iter().map(|checked| checked.problems.len()).sum();
    (all.len() > 1 || problems > 0).then(|| format!("files: {}, valid: {valid}, problems: {problems}", all.len()))
}

fn describe_published(applied: &wire::AppliedDefinition) -> String {
    let name = clean(&applied.definition.name);
    let what = if applied.unchanged { "unchanged" } else { "published" };
    let paused =
        if applied.definition.status == "PAUSED" { " (paused: its executions wait until it is resumed)" } else { "" };
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
        expected.assert_eq(&describe(&check(&document), Some(text), StreamStyle::PLAIN));
    }

    #[test]
    fn a_valid_file_is_shown_with_its_size() {
        validate(
            "name: two\nnodes:\n  a: {kind: LOG, with: {message: hi}}\n  b: {kind: DELAY, needs: a, with: {for: 5s}}\n",
            expect!["flow.yaml: valid: two, nodes: 2, edges: 1"],
        );
        validate("nodes: {}", expect!["flow.yaml: valid: flow, nodes: 0, edges: 0"]);
    }

    #[test]
    fn files_are_counted_if_there_are_several_or_any_problem() {
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
            seen.push_str(&format!("{}\n", describe(&checked, None, StreamStyle::PLAIN)));
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
