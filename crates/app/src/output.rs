//! Everything this program says: data on stdout, messages on stderr.
//!
//! Invariants
//! - What others wrote (a server, a document) never reaches a terminal with a control character in it.
//! - Colours are for terminals; lines are whole everywhere, so that ids can be copied.
//! - JSON for scripts is what the server sent, byte for byte; a terminal gets the same value, indented.
//!
//! Not here: what to say (`client`), the live view of an execution (`client::watch`).

pub(crate) mod hint;
mod text;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use comfy_table::presets::NOTHING;
use comfy_table::{Color, ContentArrangement, Table};
use serde_json::Value;

pub(crate) use text::{cause, clean, count, failure, time, took};

/// What a stream can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) terminal: bool,
    pub(crate) color: bool,
}

impl Look {
    /// No terminal, no colour.
    #[cfg(test)]
    pub(crate) const PLAIN: Look = Look { terminal: false, color: false };

    pub(crate) fn stdout(no_color: bool) -> Look {
        Look::of(io::stdout().is_terminal(), no_color)
    }

    pub(crate) fn stderr(no_color: bool) -> Look {
        Look::of(io::stderr().is_terminal(), no_color)
    }

    fn of(is_terminal: bool, no_color: bool) -> Look {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let terminal = is_terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Look { terminal, color: terminal && !no_color && !is_set("NO_COLOR") }
    }

    /// How many characters fit in a line, if this is a terminal that says so.
    pub(crate) fn width(self) -> Option<usize> {
        Table::new().width().filter(|width| self.terminal && *width > 0).map(usize::from)
    }

    /// A text in a tone, if this stream has colours.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if !self.color => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Busy => "36",
            Tone::Warn => "33",
            Tone::Faint => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// What a text is about, shown as a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
    Busy,
    Warn,
    Faint,
}

/// The tone of a status, whichever lifecycle it belongs to.
pub(crate) fn tone(status: &str) -> Tone {
    match status {
        "COMPLETED" | "ACTIVE" | "FREE" => Tone::Good,
        "FAILED" | "TIMED_OUT" | "UNKNOWN" => Tone::Bad,
        "RUNNING" | "CLAIMED" | "DISPATCHED" => Tone::Busy,
        "RETRYING" | "CANCELED" | "PAUSED" | "FULL" => Tone::Warn,
        "SKIPPED" => Tone::Faint,
        _ => Tone::Plain,
    }
}

/// A field of a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A text from anywhere: it is cleaned here.
    pub(crate) fn new(text: impl Display) -> Cell {
        Cell { text: clean(&text.to_string()), tone: Tone::Plain }
    }

    pub(crate) fn status(name: &str) -> Cell {
        Cell { tone: tone(name), ..Cell::new(name) }
    }

    /// The text in its tone.
    pub(crate) fn painted(&self, look: Look) -> String {
        look.paint(self.tone, &self.text)
    }

    /// A value that may be absent.
    pub(crate) fn maybe(text: Option<impl Display>) -> Cell {
        text.map_or_else(|| Cell { tone: Tone::Faint, ..Cell::new("-") }, Cell::new)
    }
}

/// Data: one line.
pub(crate) fn line(text: impl Display) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("write to stdout")
}

/// A message: one line.
pub(crate) fn note(text: impl Display) -> anyhow::Result<()> {
    writeln!(io::stderr().lock(), "{text}").context("write to stderr")
}

/// A server's answer for scripts, or indented on a terminal.
pub(crate) fn json(body: &str, look: Look) -> anyhow::Result<()> {
    match serde_json::from_str(body) {
        Ok(parsed) if look.terminal => value(&parsed),
        _ => line(body.trim_end()),
    }
}

/// A JSON value, indented.
pub(crate) fn value(value: &Value) -> anyhow::Result<()> {
    line(text::indented(value))
}

/// A table without borders.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<Cell>>, look: Look) -> anyhow::Result<()> {
    line(render(head, rows, look))
}

/// Names and values, one pair a line.
pub(crate) fn record(pairs: &[(&str, Cell)], look: Look) -> anyhow::Result<()> {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, cell) in pairs {
        let name = look.paint(Tone::Faint, &format!("{name:<width$}"));
        line(format!("{name}  {}", cell.painted(look)))?;
    }
    Ok(())
}

/// The text of a table.
pub(crate) fn render(head: &[&str], rows: Vec<Vec<Cell>>, look: Look) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head.iter().map(comfy_table::Cell::new).collect::<Vec<_>>());
    // A line that the terminal wraps can still be copied; an id that we wrap cannot.
    table.set_content_arrangement(ContentArrangement::Disabled);
    if !look.terminal {
        table.force_no_tty();
    }
    for row in rows {
        table.add_row(row.into_iter().map(|cell| draw(cell, look)).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

fn draw(cell: Cell, look: Look) -> comfy_table::Cell {
    let drawn = comfy_table::Cell::new_owned(cell.text);
    let color = match cell.tone {
        _ if !look.color => return drawn,
        Tone::Plain => return drawn,
        Tone::Good => Color::Green,
        Tone::Bad => Color::Red,
        Tone::Busy => Color::Cyan,
        Tone::Warn => Color::Yellow,
        Tone::Faint => Color::DarkGrey,
    };
    drawn.fg(color)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_table_is_plain_and_whole_without_a_terminal() {
        let rows = vec![
            vec![Cell::new("acme"), Cell::status("RUNNING"), Cell::maybe(Some(3))],
            vec![Cell::new("a name that is rather long"), Cell::status("COMPLETED"), Cell::maybe(None::<i32>)],
            vec![
                Cell::new("evil\u{1b}[2J\u{1b}]0;title\u{7}\r\nname"),
                Cell::status("FAILED"),
                Cell::new("x".repeat(90)),
            ],
        ];
        expect![[r#"
            NAME                        STATUS     COUNT
            acme                        RUNNING    3
            a name that is rather long  COMPLETED  -
            evil  name                  FAILED     xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"#]]
        .assert_eq(&render(&["NAME", "STATUS", "COUNT"], rows, Look::PLAIN));
    }

    #[test]
    fn colours_are_only_where_they_are_wanted() {
        let color = Look { terminal: true, color: true };
        assert_eq!(color.paint(Tone::Good, "ok"), "\u{1b}[32mok\u{1b}[0m");
        assert_eq!(color.paint(Tone::Plain, "ok"), "ok");
        assert_eq!(Look::PLAIN.paint(Tone::Bad, "no"), "no");
    }
}
