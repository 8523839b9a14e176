//! `graph`: a workflow's graph as a picture, from a file or a server; an execution's with how its nodes stand.
//!
//! Invariants
//! - A file is drawn without a server. Whatever the source, all forms are drawn here from one layout.
//! - What is written to a file has no colours, and no more width than a page.
//!
//! Not here: how anything is drawn (`kernel::draw`), reading files (`client::document`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use kernel::draw::{self, Drawing, Format, Page};
use kernel::run::node::Status;

use super::api::{Answer, Query};
use super::connection::{Format as Shown, Place, Session};
use super::execution::path;
use super::which::Which;
use super::{Act, On, definition};
use crate::exit::{Exit, settle, usage};
use crate::output::{self, Look};

/// Draw a workflow's graph, or an execution's with how its nodes stand
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What ends with .yaml, .yml or .json or has a / in it is a file, and needs no server; so is -, which reads stdin. \
An id may be an execution's or a workflow's.

Examples:
  forebay graph examples/branches.yaml
  forebay graph order --format mermaid
  forebay graph @latest:order
  forebay graph 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --out run.svg")]
pub(crate) struct Graph {
    /// A file; a workflow by name or id; an execution by its id, or @latest, or @latest:WORKFLOW
    #[arg(value_name = "FILE|WORKFLOW|EXECUTION")]
    what: String,
    /// How to draw it [default: text, or what the ending of --out says]
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    format: Option<Format>,
    /// Write to this file: .svg, .mmd, .dot, .gv, .json and .txt choose the format
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A version of the workflow, instead of the published one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    version: Option<i32>,
    /// Text without characters that an old terminal lacks
    #[arg(long)]
    ascii: bool,
    #[command(flatten)]
    place: Place,
}

fn formats() -> impl clap::builder::TypedValueParser<Value = Format> {
    let names = ["text", "svg", "mermaid", "dot", "json"];
    PossibleValuesParser::new(names).map(|name| named(&name).unwrap_or(Format::Text))
}

fn named(name: &str) -> Option<Format> {
    Format::ALL.into_iter().find(|format| format.name() == name)
}

/// Draws a file here and now; asks a server for anything else.
pub(super) async fn run(graph: Box<On<Graph>>) -> Exit {
    if !graph.command.is_file() {
        return graph.run().await;
    }
    let shown = graph.connection.format();
    settle(graph.command.draw_file(shown, graph.connection.stdout()), shown)
}

impl Act for Graph {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let answer = match self.what.parse::<Which>() {
            Ok(which) if self.version.is_none() => self.of_execution(session, &which).await?,
            Ok(Which::Latest { .. }) => return Err(usage("--version is of a workflow: name that")),
            _ => self.of_workflow(session).await?,
        };
        self.show(&answer.value, &answer.body, session.format, session.stdout)
    }
}

impl Graph {
    fn is_file(&self) -> bool {
        let ending = Path::new(&self.what).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        self.what == "-" || self.what.contains('/') || ["yaml", "yml", "json"].contains(&ending)
    }

    fn draw_file(&self, shown: Shown, look: Look) -> anyhow::Result<Exit> {
        if self.version.is_some() {
            return Err(usage("--version is of a workflow on a server: a file has none"));
        }
        let (definition, plan) = definition::graph_of(&self.what, look)?;
        let drawing = Drawing::new(&definition, &plan, None);
        self.show(&drawing, &drawing.render(Format::Json), shown, look)
    }

    /// An id that is no execution's may be a workflow's.
    async fn of_execution(&self, session: &Session, which: &Which) -> anyhow::Result<Answer<Drawing>> {
        let id = which.find(session, &self.place).await?;
        let answer = session.api.get(&format!("{}/graph", path(id)), JSON).await;
        match answer {
            Err(error) if error.status() == Some(404) && matches!(which, Which::Id(_)) => {
                // If it is neither, an execution is what is missing.
                self.of_workflow(session).await.or_else(|_| Err(error).context("draw it"))
            }
            answer => answer.context("draw it"),
        }
    }

    async fn of_workflow(&self, session: &Session) -> anyhow::Result<Answer<Drawing>> {
        let found = definition::find(session, &self.what, &self.place).await?;
        let version = self.version.map(|version| version.to_string());
        let query: Vec<(&str, &str)> =
            JSON.iter().copied().chain(version.as_deref().map(|version| ("version", version))).collect();
        session.api.get(&format!("workflow/definitions/{}/graph", found.id), &query).await.context("draw it")
    }

    fn show(&self, drawing: &Drawing, json: &str, shown: Shown, look: Look) -> anyhow::Result<Exit> {
        let format = self.chosen(shown);
        match &self.out {
            Some(file) => {
                let text = match format {
                    Format::Json => format!("{json}\n"),
                    Format::Text => draw::text(drawing, &Page { is_ascii: self.is_ascii(), ..Page::default() }),
                    format => drawing.render(format),
                };
                fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
                output::note(format!("written: {}", file.display()))?;
            }
            None => match format {
                Format::Json => output::json(json, look)?,
                Format::Text => output::line(draw::text(drawing, &self.page(look)).trim_end_matches('\n'))?,
                format => output::line(drawing.render(format).trim_end_matches('\n'))?,
            },
        }
        Ok(Exit::Done)
    }

    fn chosen(&self, shown: Shown) -> Format {
        let by_ending = || {
            let ending = self.out.as_ref()?.extension()?.to_str()?;
            match ending {
                "mmd" => Some(Format::Mermaid),
                "gv" => Some(Format::Dot),
                "txt" => Some(Format::Text),
                ending => named(ending),
            }
        };
        let usual = if shown == Shown::Json { Format::Json } else { Format::Text };
        self.format.or_else(by_ending).unwrap_or(usual)
    }

    fn page(&self, look: Look) -> Page {
        let usual = Page { is_ascii: self.is_ascii(), ..Page::default() };
        let width = look.width().unwrap_or(usual.width);
        Page { width, paint: look.color.then_some(paint), ..usual }
    }

    /// Told so, or by a locale that has nothing else.
    fn is_ascii(&self) -> bool {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        self.ascii || locale.is_some_and(|locale| !locale.to_ascii_lowercase().replace('-', "").contains("utf8"))
    }
}

const JSON: Query<'static> = &[("format", "json")];

fn paint(status: Status, text: &str) -> String {
    Look { terminal: true, color: true }.paint(output::tone(status.name()), text)
}
