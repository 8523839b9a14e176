//! Builds a value from the events of the YAML parser, and a tree of `Spot`s with the location of each value.
//!
//! Invariants
//! - A spot has one child for each item or field of its value, in the same order.
//! - A copy is charged before it is made. An alias and an anchor cost as much as the value that they copy.
//! - There is no recursion here, so a deeply nested text cannot overflow the stack.
//!
//! Not here: the lines and columns of problems that later steps find (`place`).

use std::collections::BTreeMap;

use granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle, ScanError, Span, Tag};
use serde_json::{Map, Value};

use super::{MAX_EXPANDED, MAX_VALUES, place, scalar};
use crate::definition::MAX_DEPTH;
use crate::definition::fields::child;
use crate::definition::parse::{MAX_POINTER_LEN, MAX_PROBLEMS};
use crate::definition::problem::{Code, Problem};

/// A range of the text, with the line and column of its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The location of a value in the text, and of its key if it is a field.
#[derive(Clone, Debug, Default)]
pub(super) struct Spot {
    pub(super) key: Option<Range>,
    pub(super) value: Range,
    pub(super) children: Vec<Spot>,
}

/// The size of a value, which counts towards the limits.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    values: usize,
    bytes: usize,
    height: usize,
}

/// A value that was read to its end.
#[derive(Clone, Debug)]
struct Built {
    value: Value,
    spot: Spot,
    weight: Weight,
}

/// A list or an object whose end has not been read yet.
#[derive(Debug)]
struct Frame {
    start: Range,
    anchor: usize,
    weight: Weight,
    spots: Vec<Spot>,
    open: Open,
}

#[derive(Debug)]
enum Open {
    List(Vec<Value>),
    Object { fields: Map<String, Value>, key: Option<Key>, merged: Vec<Built> },
}

/// A key whose value has not been read yet.
#[derive(Debug)]
struct Key {
    name: String,
    at: Range,
    role: Role,
}

#[derive(Debug, PartialEq, Eq)]
enum Role {
    Field,
    /// The key is a duplicate: its value is read, but not stored.
    Repeated,
    /// The key is `<<`: the fields of its value are added to the object, except those that the object has itself.
    Merge,
}

const BRACES: &str = "unquoted {{ begins a YAML object: write ${{ … }}, or put quotes around the text";
const COLON: &str = "a colon followed by a space makes a key: put quotes around the text";

/// Why reading stops.
type Stop = Box<Problem>;

/// The value of a text with its locations, or `None` and the problem at which reading stopped.
pub(super) fn build(text: &str) -> (Option<(Value, Spot)>, Vec<Problem>) {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder = Builder { text, ..Builder::default() };
    for event in Parser::new_from_str_with_options(text, options) {
        let step = match event {
            Ok((event, span)) => builder.take(event, &span),
            Err(error) => Err(Box::new(broken(text, &error))),
        };
        if let Err(stop) = step {
            builder.problems.push(*stop);
            return (None, builder.problems);
        }
    }
    let root = builder.root.map_or_else(|| (Value::Null, Spot::default()), |built| (built.value, built.spot));
    (Some(root), builder.problems)
}

fn broken(text: &str, error: &ScanError) -> Problem {
    let at = mark(error.marker());
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => place::at_mark(text, at, Code::TooDeep, &too_deep()),
        ErrorKind::MappingValueNotAllowed => place::at_mark(text, at, Code::Syntax, COLON),
        _ => place::at_mark(text, at, Code::Syntax, &format!("{}{}", error.info(), place::unquoted(text, at))),
    }
}

fn too_deep() -> String {
    format!("nests deeper than {MAX_DEPTH}")
}

#[derive(Debug, Default)]
struct Builder<'t> {
    text: &'t str,
    stack: Vec<Frame>,
    /// The values of anchors, which aliases repeat. A value is added when it has been read to its end.
    anchors: BTreeMap<usize, Built>,
    spent: Weight,
    documents: usize,
    /// The tag of the value that is being read.
    tag: Option<Range>,
    root: Option<Built>,
    problems: Vec<Problem>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Stop> {
        let at = range(span);
        self.tag = span.tag_span().map(|span| range(&span));
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                let one = if self.documents == 1 { Ok(()) } else { Err("a text may contain only one YAML document") };
                one.map_err(|message| self.stop(Code::Syntax, at, message))
            }
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref(), at),
            Event::SequenceStart(_, anchor, tag) => {
                self.open(anchor, tag.as_deref(), "seq", Open::List(Vec::new()), at)
            }
            Event::MappingStart(_, anchor, tag) => {
                let object = Open::Object { fields: Map::new(), key: None, merged: Vec::new() };
                self.open(anchor, tag.as_deref(), "map", object, at)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(at),
            Event::Alias(id) => self.alias(id, at),
            _ => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        at: Range,
    ) -> Result<(), Stop> {
        if let Some((fields, key)) = self.awaits_key() {
            let role = match style {
                ScalarStyle::Plain if text == "<<" => Role::Merge,
                _ if fields.contains_key(text) => Role::Repeated,
                _ => Role::Field,
            };
            let repeated = role == Role::Repeated;
            *key = Some(Key { name: text.to_owned(), at, role });
            if repeated {
                self.note(Code::DuplicateKey, at, &format!("the key {text:?} is given twice"));
            }
            self.charge(Weight { values: 0, bytes: text.len(), height: 0 }, at)?;
            return self.keep_key(text, style, anchor, tag, at);
        }
        let weight = Weight { values: 1, bytes: text.len(), height: 0 };
        self.charge(weight, at)?;
        let value = self.value(text, style, tag, at)?;
        self.put(Built { value, spot: Spot { key: None, value: at, children: Vec::new() }, weight }, anchor)
    }

    /// Checks the tag of a key, and keeps the key for aliases if it has an anchor.
    fn keep_key(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        at: Range,
    ) -> Result<(), Stop> {
        if anchor == 0 && tag.is_none() {
            return Ok(());
        }
        let value = self.value(text, style, tag, at)?;
        if anchor > 0 {
            let weight = Weight { values: 1, bytes: text.len(), height: 0 };
            self.charge(weight, at)?;
            let spot = Spot { key: None, value: at, children: Vec::new() };
            self.anchors.insert(anchor, Built { value, spot, weight });
        }
        Ok(())
    }

    fn value(&self, text: &str, style: ScalarStyle, tag: Option<&Tag>, at: Range) -> Result<Value, Stop> {
        let plain = || scalar::plain(text).map_err(|message| self.stop(Code::BadValue, at, &message));
        let Some(tag) = tag else {
            return if style == ScalarStyle::Plain { plain() } else { Ok(Value::String(text.to_owned())) };
        };
        let fits = |value: &Value| match tag.core_suffix() {
            Some("int") => value.is_i64() || value.is_u64(),
            Some("float") => value.is_number(),
            Some("bool") => value.is_boolean(),
            Some("null") => value.is_null(),
            _ => false,
        };
        match tag.core_suffix() {
            Some("str") => Ok(Value::String(text.to_owned())),
            Some("int" | "float" | "bool" | "null") => {
                let value = plain()?;
                let wrong = || self.stop(Code::Syntax, at, "the value does not have the type of its tag");
                if fits(&value) { Ok(value) } else { Err(wrong()) }
            }
            _ => Err(self.unsupported(tag, at)),
        }
    }

    fn open(&mut self, anchor: usize, tag: Option<&Tag>, kind: &str, open: Open, at: Range) -> Result<(), Stop> {
        if let Some(tag) = tag.filter(|tag| tag.core_suffix() != Some(kind)) {
            return Err(self.unsupported(tag, at));
        }
        if self.awaits_key().is_some() {
            let braces = self.text[..at.start].ends_with('{') && self.text[at.start..].starts_with('{');
            let message = if braces { BRACES } else { "a key must be text, not a list or an object" };
            return Err(self.stop(Code::Syntax, at, message));
        }
        if self.stack.len() >= MAX_DEPTH {
            return Err(self.stop(Code::TooDeep, at, &too_deep()));
        }
        self.charge(Weight { values: 1, bytes: 0, height: 0 }, at)?;
        let weight = Weight { values: 1, bytes: 0, height: 1 };
        self.stack.push(Frame { start: at, anchor, weight, spots: Vec::new(), open });
        Ok(())
    }

    fn close(&mut self, end: Range) -> Result<(), Stop> {
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let Frame { start, anchor, weight, mut spots, open } = frame;
        let value = match open {
            Open::List(items) => Value::Array(items),
            Open::Object { mut fields, merged, .. } => {
                for Built { value, spot, .. } in merged {
                    let Value::Object(more) = value else { continue };
                    for ((name, value), spot) in more.into_iter().zip(spot.children) {
                        if !fields.contains_key(&name) {
                            fields.insert(name, value);
                            spots.push(spot);
                        }
                    }
                }
                Value::Object(fields)
            }
        };
        let value_at = Range { end: end.end.max(start.end), ..start };
        self.put(Built { value, spot: Spot { key: None, value: value_at, children: spots }, weight }, anchor)
    }

    fn alias(&mut self, id: usize, at: Range) -> Result<(), Stop> {
        if self.awaits_key().is_some() {
            return Err(self.stop(Code::Syntax, at, "a key must be text, not an alias"));
        }
        let Some(weight) = self.anchors.get(&id).map(|built| built.weight) else {
            return Err(self.stop(Code::Syntax, at, "an alias cannot be inside the value that it repeats"));
        };
        if self.stack.len() + weight.height > MAX_DEPTH {
            return Err(self.stop(Code::TooDeep, at, &too_deep()));
        }
        self.charge(weight, at)?;
        let copy = self.anchors[&id].clone();
        self.put(copy, 0)
    }

    /// Adds a value to the list or object that is being read, and stores a copy if the value has an anchor.
    fn put(&mut self, built: Built, anchor: usize) -> Result<(), Stop> {
        if anchor > 0 {
            self.charge(built.weight, built.spot.value)?;
            self.anchors.insert(anchor, built.clone());
        }
        let Some(mut frame) = self.stack.pop() else {
            self.root = Some(built);
            return Ok(());
        };
        frame.weight.values += built.weight.values;
        frame.weight.bytes += built.weight.bytes;
        frame.weight.height = frame.weight.height.max(built.weight.height + 1);
        let Frame { open, spots, .. } = &mut frame;
        let misplaced = match open {
            Open::List(items) => {
                items.push(built.value);
                spots.push(built.spot);
                None
            }
            Open::Object { fields, key, merged } => match key.take() {
                Some(Key { role: Role::Merge, at, .. }) => merge(built, merged).err().map(|()| at),
                Some(Key { name, at, role: Role::Field }) => {
                    fields.insert(name, built.value);
                    spots.push(Spot { key: Some(at), ..built.spot });
                    None
                }
                _ => None,
            },
        };
        self.stack.push(frame);
        let stop = |at| self.stop(Code::Syntax, at, "<< takes an object, or a list of objects");
        misplaced.map_or(Ok(()), |at| Err(stop(at)))
    }

    /// The object that is being read, if its next event must be a key.
    fn awaits_key(&mut self) -> Option<(&Map<String, Value>, &mut Option<Key>)> {
        match &mut self.stack.last_mut()?.open {
            Open::Object { fields, key, .. } if key.is_none() => Some((fields, key)),
            _ => None,
        }
    }

    fn charge(&mut self, weight: Weight, at: Range) -> Result<(), Stop> {
        self.spent.values += weight.values;
        self.spent.bytes += weight.bytes;
        if self.spent.values > MAX_VALUES {
            let message = format!("there are more than {MAX_VALUES} values, counting the copies that aliases make");
            return Err(self.stop(Code::TooLarge, at, &message));
        }
        if self.spent.bytes > MAX_EXPANDED {
            let message = format!("there are more than {MAX_EXPANDED} bytes, counting the copies that aliases make");
            return Err(self.stop(Code::TooLarge, at, &message));
        }
        Ok(())
    }

    fn unsupported(&self, tag: &Tag, at: Range) -> Stop {
        self.stop(Code::Syntax, self.tag.unwrap_or(at), &format!("unsupported tag {}", tag.original()))
    }

    fn stop(&self, code: Code, at: Range, message: &str) -> Stop {
        let problem = Problem::new(code, self.pointer(), message);
        Box::new(place::at_range(self.text, at, problem))
    }

    fn note(&mut self, code: Code, at: Range, message: &str) {
        if self.problems.len() <= MAX_PROBLEMS {
            let problem = *self.stop(code, at, message);
            self.problems.push(problem);
        }
    }

    /// The pointer of the value that is being read.
    fn pointer(&self) -> String {
        let at = self.stack.iter().fold(String::new(), |at, frame| match &frame.open {
            _ if at.len() > MAX_POINTER_LEN => at,
            Open::List(items) => child(&at, &items.len().to_string()),
            Open::Object { key: Some(key), .. } => child(&at, &key.name),
            Open::Object { key: None, .. } => at,
        });
        at.chars().take(MAX_POINTER_LEN).collect()
    }
}

/// Reads the value of `<<`: an object, or a list of objects.
fn merge(built: Built, merged: &mut Vec<Built>) -> Result<(), ()> {
    match built.value {
        Value::Object(_) => merged.push(built),
        Value::Array(items) if items.iter().all(Value::is_object) => {
            let each = items.into_iter().zip(built.spot.children);
            merged.extend(each.map(|(value, spot)| Built { value, spot, weight: Weight::default() }));
        }
        _ => return Err(()),
    }
    Ok(())
}

fn range(span: &Span) -> Range {
    let start = mark(&span.start);
    Range { end: span.end.byte_offset().unwrap_or(start.start).max(start.start), ..start }
}

fn mark(mark: &Marker) -> Range {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let start = mark.byte_offset().unwrap_or_default();
    Range { start, end: start, line: small(mark.line()), column: small(mark.col() + 1) }
}
