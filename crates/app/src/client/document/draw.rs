//! Draws a problem under its line of the file.
//!
//!     error[unknown_kind]: unknown kind HTP_REQUEST
//!      --> orders.yaml:6:11
//!       |
//!     6 |     kind: HTP_REQUEST
//!       |           ^^^^^^^^^^^ did you mean HTTP_REQUEST?
//!
//! Invariants
//! - Each character of the file is one character of the drawing, so that carets are aligned. A control character is
//!   drawn as `�`.
//! - `FILE:LINE:COLUMN` is written without spaces, so that terminals and editors can open the position.
//!
//! Not here: where the text is printed (`output`).

use kernel::definition::source;

use super::Finding;
use crate::output::{StreamStyle, Tone, clean};

/// How many characters of a long line are drawn.
const WIDTH: usize = 120;
/// How many of these characters are before the problem.
const BEFORE: usize = 40;

/// The lines of a problem, followed by an empty line. Without a text or a position, the problem is one line.
pub(crate) fn draw(file: &str, text: Option<&str>, finding: &Finding, style: StreamStyle) -> String {
    let Some((number, line)) = finding.line.and_then(|number| Some((number, source::line(text?, number)?))) else {
        return plain(file, finding);
    };
    let column = finding.column.unwrap_or(1).max(1);
    let meant = finding.suggestion.as_ref().map(|word| format!(", did you mean {word}?"));
    let message = meant.as_ref().and_then(|meant| finding.message.strip_suffix(meant.as_str()));
    let message = clean(message.unwrap_or(&finding.message));
    let code = finding.code.map(|code| format!("[{}]", code.name())).unwrap_or_default();
    let (shown, before) = window(line, column as usize - 1);
    let carets = finding
        .text
        .as_ref()
        .map_or(1, |text| text.chars().count())
        .clamp(1, shown.chars().count().saturating_sub(before).max(1));
    let help = finding.suggestion.as_ref().map(|word| format!(" did you mean {}?", clean(word))).unwrap_or_default();
    let gutter = number.to_string();
    let space = " ".repeat(gutter.len());
    let bar = style.paint(Tone::Busy, "|");
    [
        format!("{}: {message}", style.paint(Tone::Bad, &format!("error{code}"))),
        format!("{space}{} {file}:{number}:{column}", style.paint(Tone::Busy, "-->")),
        format!("{space} {bar}"),
        format!("{} {bar} {shown}", style.paint(Tone::Busy, &gutter)).trim_end().to_owned(),
        format!(
            "{space} {bar} {}{}",
            " ".repeat(before),
            style.paint(Tone::Bad, &format!("{}{help}", "^".repeat(carets)))
        ),
        String::new(),
    ]
    .join("\n")
}

/// A problem in one line.
pub(crate) fn plain(file: &str, finding: &Finding) -> String {
    let place = finding.line.map(|line| format!("{line}:{}:", finding.column.unwrap_or(1))).unwrap_or_default();
    let pointer = finding.pointer.as_deref().filter(|pointer| !pointer.is_empty());
    let pointer = pointer.map(|pointer| format!(" {}:", clean(pointer))).unwrap_or_default();
    format!("{file}:{place}{pointer} {}", clean(&finding.message))
}

/// The part of a line around a position, and how many of its characters are before the position.
fn window(line: &str, at: usize) -> (String, usize) {
    let harmless = |c: char| match c {
        '\t' => ' ',
        c if clean(&c.to_string()).is_empty() => '\u{fffd}',
        c => c,
    };
    let skipped = if line.chars().count() > WIDTH { at.saturating_sub(BEFORE) } else { 0 };
    let mut shown: String = line.chars().skip(skipped).take(WIDTH).map(harmless).collect();
    if skipped == 0 {
        return (shown, at);
    }
    shown.insert(0, '…');
    (shown, at - skipped + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use kernel::definition::parse;

    fn check(text: &str, expected: Expect) {
        let problems = parse::check_text(text).expect_err("a bad file");
        let drawn =
            problems.into_iter().map(|problem| draw("flow.yaml", Some(text), &problem.into(), StreamStyle::PLAIN));
        expected.assert_eq(&drawn.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn a_finding_stands_under_its_line() {
        check(
            "nme: x\nnodes:\n  a: {type: LOG}\n  b: {kind: DELAY, needs: [a, c], with: {for: 5}}\n  \"d\\e[2J\": {}\n",
            expect![[r#"
                error[unknown_field]: unknown field nme
                 --> flow.yaml:1:1
                  |
                1 | nme: x
                  | ^^^ did you mean name?

                error[unknown_field]: unknown field type
                 --> flow.yaml:3:7
                  |
                3 |   a: {type: LOG}
                  |       ^^^^ did you mean kind?

                error[dangling_edge]: unknown node c: use one of a, b
                 --> flow.yaml:4:31
                  |
                4 |   b: {kind: DELAY, needs: [a, c], with: {for: 5}}
                  |                               ^

                error[wrong_type]: must be a duration such as 5s, 1m30s or 250ms, not a number
                 --> flow.yaml:4:47
                  |
                4 |   b: {kind: DELAY, needs: [a, c], with: {for: 5}}
                  |                                               ^

                error[bad_name]: "d\u{1b}[2J" is not a name: use 1 to 64 letters, digits, '_' or '-', starting with a letter or '_'
                 --> flow.yaml:5:3
                  |
                5 |   "d\e[2J": {}
                  |   ^^^^^^^^

                error[missing_field]: kind is missing
                 --> flow.yaml:5:3
                  |
                5 |   "d\e[2J": {}
                  |   ^^^^^^^^
            "#]],
        );
        check(
            "nodes:\n  a:\n    kind: LOG\n    with: {message: 'Hi ${{ inputs. }}'}\n\n\n\n\n\n  b: [",
            expect![[r#"
                error[syntax]: unclosed bracket '['
                  --> flow.yaml:10:6
                   |
                10 |   b: [
                   |      ^
            "#]],
        );
        check(
            "",
            expect![[r#"
                error[wrong_type]: must be an object, not null
                 --> flow.yaml:1:1
                  |
                1 |
                  | ^
            "#]],
        );
    }

    #[test]
    fn a_line_is_harmless_and_not_too_long() {
        let long = format!("nodes: {{}}\nname: \"{}\u{1b}[2J\u{202e}\t{}\"\n", "x".repeat(60), "y".repeat(200));
        check(
            &long,
            expect![[r#"
            error[syntax]: unexpected character: `\u{1b}'
             --> flow.yaml:2:68
              |
            2 | …xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx�[2J� yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy
              |                                          ^
        "#]],
        );
        let late = format!(
            "nodes: {{a: {{kind: LOG, with: {{message: \"{}${{{{ env.x }}}}{}\"}}}}}}\n",
            "x".repeat(200),
            "y".repeat(200)
        );
        check(
            &late,
            expect![[r#"
                error[unknown_root]: unknown root env: use one of inputs, nodes, vars, secrets, trigger, execution, workspace (at offset 204)
                 --> flow.yaml:1:245
                  |
                1 | …xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx${{ env.x }}yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy
                  |                                          ^^^^^
            "#]],
        );
    }

    #[test]
    fn what_has_no_place_is_one_line() {
        let finding = Finding::plain("the workflow has no name: write `name:` at the top");
        assert_eq!(
            draw("a.yaml", Some(""), &finding, StreamStyle::PLAIN),
            "a.yaml: the workflow has no name: write `name:` at the top"
        );
        let finding = Finding { pointer: Some("/a".to_owned()), ..Finding::plain("is missing") };
        assert_eq!(draw("a.yaml", None, &finding, StreamStyle::PLAIN), "a.yaml: /a: is missing");
    }

    #[test]
    fn colours_are_for_terminals() {
        let finding = Finding { line: Some(1), column: Some(1), ..Finding::plain("wrong") };
        let color = StreamStyle { terminal: true, color: true };
        assert!(draw("a.yaml", Some("a"), &finding, color).contains("\u{1b}[31m^\u{1b}[0m"));
        assert!(!draw("a.yaml", Some("a"), &finding, StreamStyle::PLAIN).contains('\u{1b}'));
    }
}
