//! `graph`: draws the graph of a workflow file, a published workflow, or an execution with the status of its nodes.
//!
//! Invariants
//! - A file is drawn without a server. Every format is drawn by this program, from the same layout.
//! - A drawing that is written to a file has no colors, and at most the width of a page.
//!
//! Not here: how a graph is drawn (`kernel::draw`), reading files (`client::document`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use kernel::draw::{self, Drawing, Format, Page};
use kernel::run::node::Status;

use super::api::{Answer, Query};
use super::connection::{Format as OutputFormat, Session, WorkspaceArg};
use super::execution::path;
use super::execution_ref::ExecutionRef;
use super::{Connected, Execute, definition};
use crate::exit::{Exit, report_result, usage_error};
use crate::output::{self, StreamStyle};

/// Draw the graph of a workflow, or of an execution with the status of its nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An argument that ends with .yaml, .yml or .json, or that contains a /, is a file and needs no server; - reads stdin. \
An id may be that of an execution or of a workflow.

Examples:
  forebay graph examples/branches.yaml
  forebay graph order --format mermaid
  forebay graph @latest:order
  forebay graph 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --out run.svg")]
pub(crate) struct GraphArgs {
    /// A file; a workflow by name or id; an execution by its id, or @latest, or @latest:WORKFLOW
    #[arg(value_name = "FILE|WORKFLOW|EXECUTION")]
    what: String,
    /// The format [default: text, or the format that belongs to the file name of --out]
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    format: Option<Format>,
    /// Write to this file; the endings .svg, .mmd, .dot, .gv, .json and .txt choose the format
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The version of the workflow [default: the published one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    version: Option<i32>,
    /// Use only ASCII characters
    #[arg(long)]
    ascii: bool,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

fn formats() -> impl clap::builder::TypedValueParser<Value = Format> {
    let names = ["text", "svg", "mermaid", "dot", "json"];
    PossibleValuesParser::new(names).map(|name| named(&name).unwrap_or(Format::Text))
}

fn named(name: &str) -> Option<Format> {
    Format::ALL.into_iter().find(|format| format.name() == name)
}

/// Draws a file locally; asks the server for everything else.
pub(super) async fn run(graph: Box<Connected<GraphArgs>>) -> Exit {
    if !graph.command.is_file() {
        return graph.run().await;
    }
    let shown = graph.connection.format();
    report_result(graph.command.draw_file(shown, graph.connection.stdout()), shown)
}

impl Execute for GraphArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let answer = match self.what.parse::<ExecutionRef>() {
            Ok(which) if self.version.is_none() => self.of_execution(session, &which).await?,
            Ok(ExecutionRef::Latest { .. }) => {
                return Err(usage_error("--version needs a workflow: name the workflow instead of an execution"));
            }
            _ => self.of_workflow(session).await?,
        };
        self.show(&answer.value, &answer.body, session.format, session.stdout)
    }
}

impl GraphArgs {
    fn is_file(&self) -> bool {
        let ending = Path::new(&self.what).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        self.what == "-" || self.what.contains('/') || ["yaml", "yml", "json"].contains(&ending)
    }

    fn draw_file(&self, shown: OutputFormat, style: StreamStyle) -> anyhow::Result<Exit> {
        if self.version.is_some() {
            return Err(usage_error("--version needs a published workflow: a file has no versions"));
        }
        let (definition, plan) = definition::graph_of(&self.what, style)?;
        let drawing = Drawing::new(&definition, &plan, None);
        self.show(&drawing, &drawing.render(Format::Json), shown, style)
    }

    /// Draws an execution. If there is no execution with this id, draws the workflow with this id.
    async fn of_execution(&self, session: &Session, which: &ExecutionRef) -> anyhow::Result<Answer<Drawing>> {
        let id = which.find(session, &self.workspace).await?;
        let answer = session.api.get(&format!("{}/graph", path(id)), JSON).await;
        match answer {
            Err(error) if error.status() == Some(404) && matches!(which, ExecutionRef::Id(_)) => {
                // If there is no such workflow either, report the missing execution.
                self.of_workflow(session).await.or_else(|_| Err(error).context("draw the graph"))
            }
            answer => answer.context("draw the graph"),
        }
    }

    async fn of_workflow(&self, session: &Session) -> anyhow::Result<Answer<Drawing>> {
        let found = definition::find(session, &self.what, &self.workspace).await?;
        let version = self.version.map(|version| version.to_string());
        let query: Vec<(&str, &str)> =
            JSON.iter().copied().chain(version.as_deref().map(|version| ("version", version))).collect();
        session.api.get(&format!("workflow/definitions/{}/graph", found.id), &query).await.context("draw the graph")
    }

    fn show(&self, drawing: &Drawing, json: &str, shown: OutputFormat, style: StreamStyle) -> anyhow::Result<Exit> {
        let format = self.chosen(shown);
        match &self.out {
            Some(file) => {
                let text = match format {
                    Format::Json => format!("{json}\n"),
                    Format::Text => draw::text(drawing, &Page { is_ascii: self.is_ascii(), ..Page::default() }),
                    format => drawing.render(format),
                };
                fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
                output::print_note(format!("written: {}", file.display()))?;
            }
            None => match format {
                Format::Json => output::print_json(json, style)?,
                Format::Text => output::print_line(draw::text(drawing, &self.page(style)).trim_end_matches('\n'))?,
                format => output::print_line(drawing.render(format).trim_end_matches('\n'))?,
            },
        }
        Ok(Exit::Done)
    }

    fn chosen(&self, shown: OutputFormat) -> Format {
        let by_ending = || {
            let ending = self.out.as_ref()?.extension()?.to_str()?;
            match ending {
                "mmd" => Some(Format::Mermaid),
                "gv" => Some(Format::Dot),
                "txt" => Some(Format::Text),
                ending => named(ending),
            }
        };
        let usual = if shown == OutputFormat::Json { Format::Json } else { Format::Text };
        self.format.or_else(by_ending).unwrap_or(usual)
    }

    fn page(&self, style: StreamStyle) -> Page {
        let usual = Page { is_ascii: self.is_ascii(), ..Page::default() };
        let width = style.width().unwrap_or(usual.width);
        Page { width, paint: style.color.then_some(paint), ..usual }
    }

    /// Whether to use only ASCII: because of the flag, or because the locale is not UTF-8.
    fn is_ascii(&self) -> bool {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        self.ascii || locale.is_some_and(|locale| !locale.to_ascii_lowercase().replace('-', "").contains("utf8"))
    }
}

const JSON: Query<'static> = &[("format", "json")];

fn paint(status: Status, text: &str) -> String {
    StreamStyle { terminal: true, color: true }.paint(output::tone_of_status(status.name()), text)
}
