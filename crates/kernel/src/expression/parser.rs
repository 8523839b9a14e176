//! Reads the text of an expression.
//!
//! Invariants
//! - Whatever is accepted means the same in CEL: `a-b` is a subtraction there, so a name with a
//!   minus must stand in brackets, and the message shows how.
//! - Reading takes one pass and no recursion.
//!
//! Not here: what an expression means (`expression`).

use serde_json::{Number, Value};

use super::{MAX_SEGMENTS, MAX_SOURCE_LEN, Op, ParseError, Path, Segment, Term};

/// What CEL does not take behind a dot.
const KEYWORDS: [&str; 4] = ["true", "false", "null", "in"];

const LITERAL: &str = "text in quotes, a number, true, false or null";

/// The terms of an expression, in order.
pub(super) fn parse(source: &str) -> Result<Vec<Term>, ParseError> {
    let mut parser = Parser { source, at: 0 };
    if source.len() > MAX_SOURCE_LEN {
        return Err(parser.fail(format!("is longer than {MAX_SOURCE_LEN} bytes")));
    }
    let mut terms = Vec::new();
    loop {
        terms.push(parser.term()?);
        parser.skip_space();
        if parser.rest().is_empty() {
            return Ok(terms);
        }
        if !parser.eat("&&") {
            return Err(parser.unexpected("&& or the end"));
        }
    }
}

/// Can this name stand behind a dot?
pub(super) fn is_selector(name: &str) -> bool {
    let mut chars = name.chars();
    let head = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    head && chars.all(|c| c.is_ascii_alphanumeric() || c == '_') && !KEYWORDS.contains(&name)
}

struct Parser<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn term(&mut self) -> Result<Term, ParseError> {
        self.skip_space();
        if self.eat("!") {
            self.skip_space();
            let path = self.path()?;
            if self.op().is_some() {
                return Err(self.fail("! takes a path only: write path != literal"));
            }
            return Ok(Term::Not(path));
        }
        if let Some(value) = self.literal()? {
            if self.op().is_some() {
                return Err(self.fail("the path comes first: write inputs.count > 1"));
            }
            return Ok(Term::Literal(value));
        }
        let path = self.path()?;
        let Some(op) = self.op() else { return Ok(Term::Path(path)) };
        self.skip_space();
        let literal = self.literal()?.ok_or_else(|| self.unexpected(LITERAL))?;
        Ok(Term::Compare(path, op, literal))
    }

    fn op(&mut self) -> Option<Op> {
        self.skip_space();
        Op::SYMBOLS.into_iter().find(|(symbol, _)| self.eat(symbol)).map(|(_, op)| op)
    }

    fn path(&mut self) -> Result<Path, ParseError> {
        let root = self.name("a path such as inputs.order_id or nodes.fetch.output")?;
        // One word for one thing: files of other products say steps.
        let root = if root == "steps" { "nodes" } else { root };
        let mut path = Path { root: root.to_owned(), segments: Vec::new() };
        loop {
            self.refuse_minus(&path)?;
            self.skip_space();
            let segment = if self.eat(".") {
                self.skip_space();
                Segment::Field(self.name("a field name")?.to_owned())
            } else if self.eat("[") {
                self.bracket()?
            } else if self.rest().starts_with('(') {
                return Err(self.fail("functions are not available yet"));
            } else {
                return Ok(path);
            };
            if path.segments.len() == MAX_SEGMENTS {
                return Err(self.fail(format!("a path has at most {MAX_SEGMENTS} segments")));
            }
            path.segments.push(segment);
        }
    }

    /// A name with a minus is the likeliest slip of all, so its message shows the whole cure.
    fn refuse_minus(&self, path: &Path) -> Result<(), ParseError> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let tail = self.rest();
        if !tail.starts_with('-') || !self.source[..self.at].ends_with(word) {
            return Ok(());
        }
        let tail = &tail[..tail.find(|c| !word(c) && c != '-').unwrap_or(tail.len())];
        let mut before = path.clone();
        let Some(Segment::Field(name)) = before.segments.pop() else {
            return Err(self.fail("- is not available yet"));
        };
        Err(self.fail(format!("- means minus here: write {before}[\"{name}{tail}\"]")))
    }

    fn name(&mut self, expected: &str) -> Result<&'a str, ParseError> {
        let word = self.word();
        if word.is_empty() {
            return Err(self.unexpected(expected));
        }
        if KEYWORDS.contains(&word) {
            return Err(self.fail(format!("{word} is a word of the language: write [\"{word}\"] for a field")));
        }
        self.at += word.len();
        Ok(word)
    }

    /// The identifier that starts here, or nothing.
    fn word(&self) -> &'a str {
        let rest = self.rest();
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            return "";
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    }

    fn bracket(&mut self) -> Result<Segment, ParseError> {
        self.skip_space();
        let segment = match self.rest().chars().next() {
            Some(quote @ ('"' | '\'')) => Segment::Field(self.text(quote)?),
            Some(c) if c.is_ascii_digit() => {
                let digits = self.digits();
                let at = digits.parse().map_err(|_| self.fail("the position is too large"))?;
                self.at += digits.len();
                Segment::Index(at)
            }
            _ => return Err(self.unexpected("a position such as [0] or a field such as [\"a-b\"]")),
        };
        self.skip_space();
        if self.eat("]") { Ok(segment) } else { Err(self.unexpected("]")) }
    }

    fn literal(&mut self) -> Result<Option<Value>, ParseError> {
        let value = match self.word() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            _ => match self.rest().chars().next() {
                Some(quote @ ('"' | '\'')) => return self.text(quote).map(|text| Some(Value::String(text))),
                Some(c) if c == '-' || c.is_ascii_digit() => return self.number().map(Some),
                _ => return Ok(None),
            },
        };
        self.at += self.word().len();
        Ok(Some(value))
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let rest = self.rest();
        let mut previous = ' ';
        let end = rest.find(|c: char| {
            let sign = matches!(c, '+' | '-') && matches!(previous, ' ' | 'e' | 'E');
            previous = c;
            !(sign || c.is_ascii_alphanumeric() || c == '.' || c == '_')
        });
        let text = &rest[..end.unwrap_or(rest.len())];
        let number: Number = serde_json::from_str(text)
            .map_err(|_| self.fail("is not a number that can be read: write it as in JSON, such as -1.5 or 2e3"))?;
        let whole = !text.contains(['.', 'e', 'E']);
        if whole && !number.is_i64() && !number.is_u64() {
            return Err(self.fail("the number is too large to be exact"));
        }
        self.at += text.len();
        Ok(Value::Number(number))
    }

    fn text(&mut self, quote: char) -> Result<String, ParseError> {
        let start = self.at;
        self.at += quote.len_utf8();
        let mut text = String::new();
        while let Some(c) = self.rest().chars().next() {
            self.at += c.len_utf8();
            match c {
                '\\' => text.push(self.escape()?),
                '\n' | '\r' | '\0' => return Err(self.fail("text cannot go over a line's end: write \\n")),
                c if c == quote => return Ok(text),
                c => text.push(c),
            }
        }
        self.at = start;
        Err(self.fail(format!("the text is never closed: add {quote}")))
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        let c = self.rest().chars().next();
        let (plain, digits) = match c {
            Some(c @ ('\\' | '"' | '\'')) => (Some(c), 0),
            Some('n') => (Some('\n'), 0),
            Some('r') => (Some('\r'), 0),
            Some('t') => (Some('\t'), 0),
            Some('u') => (None, 4),
            _ => return Err(self.fail("unknown escape: use \\\\ \\\" \\' \\n \\r \\t or \\u0041")),
        };
        if let Some(plain) = plain {
            self.at += 1;
            return Ok(plain);
        }
        let hex = self.rest().get(1..=digits).filter(|hex| hex.chars().all(|c| c.is_ascii_hexdigit()));
        let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        let code = code.filter(|c| *c != '\0');
        let code = code.ok_or_else(|| self.fail("\\u takes four hex digits of a character other than NUL"))?;
        self.at += 1 + digits;
        Ok(code)
    }

    fn digits(&self) -> &'a str {
        let rest = self.rest();
        &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())]
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']).len();
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn unexpected(&self, expected: &str) -> ParseError {
        let found = match self.rest().chars().next() {
            Some(c @ ('|' | '+' | '-' | '*' | '/' | '%' | '?' | ':' | '(' | ')')) => {
                format!("{c}, which is not available yet")
            }
            Some(c) => c.to_string(),
            None => "the end".to_owned(),
        };
        self.fail(format!("expected {expected}, found {found}"))
    }

    fn fail(&self, message: impl Into<String>) -> ParseError {
        ParseError { offset: self.at, message: message.into() }
    }
}
