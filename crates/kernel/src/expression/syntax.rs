//! Parses the text of an expression with a library, the crate `cel`, and rewrites its error messages for authors.
//!
//! Invariants
//! - The length and the nesting of the text are limited. So the parser needs less than a megabyte of stack for every
//!   text.
//! - Places become offsets only for an error. The parser reports offsets only with errors, so the text is parsed again,
//!   which is cheap.
//! - The crate has two parsers. This file uses the parser that is written by hand. The generated parser takes at least
//!   ten times as long, for each template of each node. In a build without optimisation, thirty nested brackets
//!   overflow a stack of two megabytes.
//!
//! Not here: which expressions are valid beyond their syntax (`expression::convert`).

use std::borrow::Cow;

use cel::IdedExpr;
use cel::parser::{ParseErrors, PrattParser};

use super::error::ParseError;
use super::path::KEYWORDS;
use super::scan::{self, Quoted};

/// The longest source of one expression, in bytes.
pub const MAX_SOURCE_LEN: usize = 4_096;
/// How deep brackets may nest.
pub const MAX_NESTING: u16 = 32;
/// The most choices `a ? b : c` in one expression, because the parser recurses once for each.
const MAX_CHOICES: usize = 100;

/// Parses an expression into the parser's tree.
pub(super) fn parse(source: &str) -> Result<IdedExpr, ParseError> {
    if source.len() > MAX_SOURCE_LEN {
        return Err(ParseError::new(0, format!("is longer than {MAX_SOURCE_LEN} bytes")));
    }
    let (wide, choices) = widen(source);
    if choices > MAX_CHOICES {
        return Err(ParseError::new(0, format!("has more than {MAX_CHOICES} choices")));
    }
    parser().parse(&wide).map_err(|errors| reword(source, &errors))
}

/// The offset of a place in the source. The parser returns offsets only with an error, so an invalid bracket is added
/// after the source. The numbers of the places before it stay the same.
pub(super) fn locate(source: &str, place: u64) -> usize {
    let spoiled = format!("{}\n]", widen(source).0);
    let errors = parser().parse(&spoiled).err().map_or_else(Vec::new, |errors| errors.errors);
    let found = errors.iter().find_map(|error| error.source_info.as_ref()?.offset_for(place));
    found.map_or(0, |(start, _)| (start as usize).min(source.len()))
}

fn parser() -> PrattParser {
    let parser = PrattParser::new().max_recursion_depth(MAX_NESTING).error_recovery_limit(0);
    parser.enable_variadic_operator_asts(true)
}

/// Rewrites whole numbers beyond `i64`, which JSON allows and the parser accepts only as unsigned literals. The text
/// keeps its length, so offsets stay the same. Also returns how many choices the text has.
fn widen(source: &str) -> (Cow<'_, str>, usize) {
    let mut wide = Cow::Borrowed(source);
    let mut choices = 0;
    let (mut at, mut before) = (0, None);
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let length = match scan::quoted(rest, before) {
            Some(Quoted::Closed(length)) => length,
            Some(Quoted::Open(_)) => break,
            None if digits > 0 => digits,
            None => c.len_utf8(),
        };
        if digits >= 19 && stands_alone(before, &rest[digits..]) && !is_negated(&source[..at]) {
            let value = rest[..digits].parse::<u64>().ok().filter(|value| i64::try_from(*value).is_err());
            if let Some(value) = value {
                wide.to_mut().replace_range(at..at + digits, &format!("{:>digits$}", format!("0x{value:x}u")));
            }
        }
        choices += usize::from(c == '?');
        at += length;
        before = source[..at].chars().next_back();
    }
    (wide, choices)
}

/// Are these digits a whole number, and not a part of a name, of a fraction or of an unsigned literal?
fn stands_alone(before: Option<char>, after: &str) -> bool {
    !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.')
        && !after.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.')
}

/// Is there a minus before a number that makes the number negative? A minus after a value is a subtraction.
fn is_negated(before: &str) -> bool {
    before.trim_end().strip_suffix('-').is_some_and(|before| {
        let value = before.trim_end();
        !value.ends_with(|c: char| c.is_alphanumeric() || "_)]}\"'".contains(c)) || value.ends_with(" in")
    })
}

/// The first error, in words for authors, with a hint if there is a usual correction.
fn reword(source: &str, errors: &ParseErrors) -> ParseError {
    let Some(error) = errors.errors.iter().find(|error| error.pos.0 > 0) else {
        let message = format!("brackets nest deeper than {MAX_NESTING}");
        return ParseError::new(0, message);
    };
    let offset = offset(source, error.pos);
    let found = found(source, offset);
    let message = match error.msg.as_str() {
        "expected identifier after '.'" if KEYWORDS.contains(&found) => {
            format!("{found} is a reserved word: write [\"{found}\"] for a field")
        }
        "expected identifier after '.'" => format!("expected a field name, found {found}"),
        "argument must be a simple name" => {
            "the first argument of a loop must be a name for the item, such as x".to_owned()
        }
        "invalid argument to has() macro" => "has is written has(inputs.field)".to_owned(),
        _ if source.contains("?.") && found == "the end" => "?. is not needed: a missing field is null".to_owned(),
        "invalid int literal" | "invalid uint literal" => "the number does not fit into 64 bits".to_owned(),
        "invalid double literal" => "the number is too large".to_owned(),
        message if message.starts_with("reserved identifier") || found == "in" && offset == 0 => {
            format!("{found} is a reserved word: write [\"{found}\"] for a field")
        }
        message if message.ends_with("expecting expression") || message == "unexpected token" => {
            format!("expected a value or a path such as inputs.order_id or nodes.fetch.output, found {found}")
        }
        message if message.ends_with("expecting <EOF>") => {
            let cure = if found.starts_with('=') { ": to compare, write ==" } else { "" };
            format!("expected an operator or the end, found {found}{cure}")
        }
        message => match message.split_once("expect").and_then(|(_, rest)| rest.split('\'').nth(1)) {
            Some(wanted) => format!("expected {wanted}, found {found}"),
            None => lexical(source, offset, message),
        },
    };
    ParseError::new(offset, message)
}

fn lexical(source: &str, offset: usize, message: &str) -> String {
    let quote = source[offset..].chars().find(|c| matches!(c, '"' | '\''));
    match quote {
        Some(quote) if message.contains("untermin") || message.contains("string literal") => {
            format!("the text is never closed: add {quote}")
        }
        Some(_) if message.contains("unescape") || message.contains("escape") => {
            "unknown escape: use \\\\ \\\" \\' \\n \\r \\t or \\u0041".to_owned()
        }
        _ => message.trim_start_matches("Syntax error: ").to_owned(),
    }
}

fn offset(source: &str, (line, column): (isize, isize)) -> usize {
    let before = usize::try_from(line - 1).unwrap_or(0);
    let start: usize = source.split_inclusive('\n').take(before).map(str::len).sum();
    let mut at = (start + usize::try_from(column - 1).unwrap_or(0)).min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The word or character at an offset.
fn found(source: &str, offset: usize) -> &str {
    let rest = &source[offset..];
    let word = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
    match rest.chars().next() {
        None => "the end",
        Some(_) if word > 0 => &rest[..word.min(40)],
        Some(c) => &rest[..c.len_utf8()],
    }
}
