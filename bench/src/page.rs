//! Writes tables of figures into pages of the documentation, between two markers.
//!
//! Invariants
//! - Only the text between the markers changes. It names the machine, the server and the scale behind the figures.

use anyhow::{Context, Result};
use serde_json::{Map, Value};

const END: &str = "<!-- end -->";

/// A number with separators of thousands.
pub(crate) fn grouped(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), String::new()), |(w, r)| (w, format!(".{r}")));
    let from_end = |at: usize| whole.len() - at;
    let grouped = whole.char_indices().map(|(at, digit)| match at {
        0 => digit.to_string(),
        _ if from_end(at).is_multiple_of(3) => format!(",{digit}"),
        _ => digit.to_string(),
    });
    grouped.collect::<String>() + &rest
}

/// A table in Markdown.
pub(crate) fn markdown(names: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |", cells.join(" | "));
    let mut lines = vec![line(names.to_vec()), line(names.iter().map(|_| "---").collect())];
    lines.extend(rows.iter().map(|cells| line(cells.iter().map(String::as_str).collect())));
    lines.join("\n")
}

/// Replaces the tables of a page by those of a run of the benchmark with this name.
pub(crate) fn write(path: &str, bench: &str, tables: &str, figures: &Map<String, Value>) -> Result<()> {
    let page = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let machine = format!(
        "Measured on {} cores, {}, PostgreSQL {}, `--scale {}`.",
        figures["machine"]["cores"],
        figures["machine"]["cpu"].as_str().unwrap_or("an unnamed processor"),
        figures["settings"]["server_version"].as_str().unwrap_or("?"),
        figures["scale"]
    );
    let page = replaced(&page, bench, &format!("{machine}\n\n{tables}")).with_context(|| format!("change {path}"))?;
    std::fs::write(path, page).with_context(|| format!("write {path}"))
}

fn replaced(page: &str, bench: &str, text: &str) -> Result<String> {
    let begin = format!("<!-- begin: written by ./dev/bench {bench} --write-page -->\n");
    let (before, rest) = page.split_once(&begin).context("find the begin of the tables")?;
    let (_, after) = rest.split_once(END).context("find the end of the tables")?;
    Ok(format!("{before}{begin}{text}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let shown = [(7.0, 0), (1_234.0, 0), (12_345.64, 1), (123_456.0, 0), (999.96, 1)];
        let shown: Vec<String> = shown.iter().map(|(value, digits)| grouped(*value, *digits)).collect();
        assert_eq!(shown, ["7", "1,234", "12,345.6", "123,456", "1,000.0"]);
    }

    #[test]
    fn only_the_text_between_the_markers_changes() {
        let begin = "<!-- begin: written by ./dev/bench scale --write-page -->\n";
        let page = format!("# A\n\n{begin}old\n\n{END}\n\nB\n");
        let written = replaced(&page, "scale", "new\n").expect("the markers are there");
        assert_eq!(written, format!("# A\n\n{begin}new\n{END}\n\nB\n"));
        assert!(replaced(&page, "peers", "new").is_err());
    }
}
