//! Output: data on stdout, messages on stderr.
//!
//! Invariants
//! - Control characters in text that this program did not write (from a server or a document) never reach a terminal.
//! - Colors are used only on terminals. Lines are never wrapped, so that ids can be copied.
//! - JSON for scripts is exactly what the server sent; a terminal gets the same value, indented.
//!
//! Not here: which text is shown (`client`), the live view of an execution (`client::watch`).

pub(crate) mod hint;
mod text;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use comfy_table::presets::NOTHING;
use comfy_table::{Color, ContentArrangement, Table};
use serde_json::Value;

pub(crate) use text::{clean, format_cause, format_count, format_duration, format_failure, format_time};

/// What an output stream supports: whether it is a terminal, and whether it shows colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamStyle {
    pub(crate) terminal: bool,
    pub(crate) color: bool,
}

impl StreamStyle {
    /// The style of a stream that is not a terminal and has no colors.
    #[cfg(test)]
    pub(crate) const PLAIN: StreamStyle = StreamStyle { terminal: false, color: false };

    pub(crate) fn stdout(no_color: bool) -> StreamStyle {
        StreamStyle::of(io::stdout().is_terminal(), no_color)
    }

    pub(crate) fn stderr(no_color: bool) -> StreamStyle {
        StreamStyle::of(io::stderr().is_terminal(), no_color)
    }

    fn of(is_terminal: bool, no_color: bool) -> StreamStyle {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let terminal = is_terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        StreamStyle { terminal, color: terminal && !no_color && !is_set("NO_COLOR") }
    }

    /// The width of a line, if this is a terminal that reports it.
    pub(crate) fn width(self) -> Option<usize> {
        Table::new().width().filter(|width| self.terminal && *width > 0).map(usize::from)
    }

    /// The text in the color of a tone, if this stream has colors.
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

/// The meaning of a text, shown as a color.
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
pub(crate) fn tone_of_status(status: &str) -> Tone {
    match status {
        "COMPLETED" | "ACTIVE" => Tone::Good,
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
    /// A text, from which control characters are removed.
    pub(crate) fn new(text: impl Display) -> Cell {
        Cell { text: clean(&text.to_string()), tone: Tone::Plain }
    }

    pub(crate) fn status(name: &str) -> Cell {
        Cell { tone: tone_of_status(name), ..Cell::new(name) }
    }

    /// The text in the color of its tone.
    pub(crate) fn painted(&self, style: StreamStyle) -> String {
        style.paint(self.tone, &self.text)
    }

    /// A cell for a value that may be absent; `-` if it is.
    pub(crate) fn optional(text: Option<impl Display>) -> Cell {
        text.map_or_else(|| Cell { tone: Tone::Faint, ..Cell::new("-") }, Cell::new)
    }
}

/// Prints one line of data to stdout.
pub(crate) fn print_line(text: impl Display) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("write to stdout")
}

/// Prints one line of a message to stderr.
pub(crate) fn print_note(text: impl Display) -> anyhow::Result<()> {
    writeln!(io::stderr().lock(), "{text}").context("write to stderr")
}

/// Prints a JSON answer to stdout: as the server sent it, or indented on a terminal.
pub(crate) fn print_json(body: &str, style: StreamStyle) -> anyhow::Result<()> {
    match serde_json::from_str(body) {
        Ok(parsed) if style.terminal => print_value(&parsed),
        _ => print_line(body.trim_end()),
    }
}

/// Prints a JSON value to stdout, indented.
pub(crate) fn print_value(value: &Value) -> anyhow::Result<()> {
    print_line(text::indented(value))
}

/// Prints a table without borders to stdout.
pub(crate) fn print_table(head: &[&str], rows: Vec<Vec<Cell>>, style: StreamStyle) -> anyhow::Result<()> {
    print_line(render_table(head, rows, style))
}

/// Prints names and values to stdout, one pair in each line.
pub(crate) fn print_record(pairs: &[(&str, Cell)], style: StreamStyle) -> anyhow::Result<()> {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, cell) in pairs {
        let name = style.paint(Tone::Faint, &format!("{name:<width$}"));
        print_line(format!("{name}  {}", cell.painted(style)))?;
    }
    Ok(())
}

/// The text of a table.
pub(crate) fn render_table(head: &[&str], rows: Vec<Vec<Cell>>, style: StreamStyle) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head.iter().map(comfy_table::Cell::new).collect::<Vec<_>>());
    // Lines are not wrapped here. If the terminal wraps a line, an id in it can still be copied as one word.
    table.set_content_arrangement(ContentArrangement::Disabled);
    if !style.terminal {
        table.force_no_tty();
    }
    for row in rows {
        table.add_row(row.into_iter().map(|cell| draw(cell, style)).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

fn draw(cell: Cell, style: StreamStyle) -> comfy_table::Cell {
    let drawn = comfy_table::Cell::new_owned(cell.text);
    let color = match cell.tone {
        _ if !style.color => return drawn,
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
    fn a_table_without_a_terminal_is_plain_and_not_wrapped() {
        let rows = vec![
            vec![Cell::new("acme"), Cell::status("RUNNING"), Cell::optional(Some(3))],
            vec![Cell::new("a name that is rather long"), Cell::status("COMPLETED"), Cell::optional(None::<i32>)],
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
        .assert_eq(&render_table(&["NAME", "STATUS", "COUNT"], rows, StreamStyle::PLAIN));
    }

    #[test]
    fn colors_are_used_only_on_terminals() {
        let color = StreamStyle { terminal: true, color: true };
        assert_eq!(color.paint(Tone::Good, "ok"), "\u{1b}[32mok\u{1b}[0m");
        assert_eq!(color.paint(Tone::Plain, "ok"), "ok");
        assert_eq!(StreamStyle::PLAIN.paint(Tone::Bad, "no"), "no");
    }
}
