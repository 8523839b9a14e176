//! Functions that convert between values and text: JSON, base64, URL encoding and hashes.
//!
//! Invariants
//! - Reading JSON charges for each value before the value is made, because a short text can contain many values.
//! - An integer that does not fit into 64 bits becomes text with its digits.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

use super::{Answer, Function, made};
use crate::exact;
use crate::expression::budget::{Budget, ENTRY, OBJECT, VALUE};
use crate::expression::error::EvalError;

/// Reading JSON, hashing and encoding cost this many times as much for each byte as comparing text.
const READ_FACTOR: usize = 8;
/// The same for writing JSON, which visits each byte twice: once to measure the length, once to write.
const WRITE_FACTOR: usize = 16;

pub(super) fn call<'e>(function: Function, mut args: Vec<Cow<'e, Value>>, budget: &mut Budget) -> Answer<'e> {
    let value = args.swap_remove(0);
    match (function, value.as_ref()) {
        (Function::String, Value::String(_)) => Ok(value),
        (Function::String, Value::Null) => made(""),
        (Function::String | Function::Json, other) => {
            let length = budget.weigh_json(other)?;
            budget.read(length.saturating_mul(WRITE_FACTOR))?;
            made(other.to_string())
        }
        (_, Value::String(text)) => {
            budget.read(text.len().saturating_mul(READ_FACTOR))?;
            written(function, text, budget)
        }
        (_, other) => Err(function.needs("text", other)),
    }
}

fn written<'e>(function: Function, text: &str, budget: &mut Budget) -> Answer<'e> {
    match function {
        Function::ParseJson => parse(function, text, budget),
        Function::Base64 => {
            budget.allocate(text.len() / 3 * 4 + 4)?;
            made(STANDARD.encode(text))
        }
        Function::UrlEncode => {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
            let length = text.bytes().map(|b| if plain(b) { 1 } else { 3 }).sum();
            budget.allocate(length)?;
            let mut encoded = String::with_capacity(length);
            for b in text.bytes() {
                if plain(b) {
                    encoded.push(char::from(b));
                } else {
                    encoded.push('%');
                    encoded.extend([b >> 4, b & 15].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])));
                }
            }
            made(encoded)
        }
        _ => {
            budget.allocate(64)?;
            let digest = Sha256::digest(text);
            let hex = digest.iter().flat_map(|b| [b >> 4, b & 15]);
            made(hex.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])).collect::<String>())
        }
    }
}

fn parse<'e>(function: Function, text: &str, budget: &mut Budget) -> Answer<'e> {
    let value = read(function, text, budget)?;
    // The text is known to be JSON here. Otherwise adding quotes could turn invalid text into valid JSON.
    match exact::quote(text.as_bytes()) {
        Cow::Borrowed(_) => made(value),
        Cow::Owned(quoted) => {
            budget.allocate(quoted.len())?;
            made(read(function, &String::from_utf8_lossy(&quoted), budget)?)
        }
    }
}

fn read(function: Function, text: &str, budget: &mut Budget) -> Result<Value, EvalError> {
    let mut spent = None;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Paying { budget, spent: &mut spent }.deserialize(&mut reader).and_then(|value| {
        reader.end()?;
        Ok(value)
    });
    match (value, spent) {
        (Ok(value), _) => Ok(value),
        (Err(_), Some(spent)) => Err(spent),
        (Err(_), None) => Err(function.refuses("the text is not JSON")),
    }
}

/// Reads a JSON value, and charges the budget while it reads.
struct Paying<'b> {
    budget: &'b mut Budget,
    spent: &'b mut Option<EvalError>,
}

impl Paying<'_> {
    fn pay<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        let paid = self.budget.step(1).and_then(|()| self.budget.allocate(bytes));
        paid.map_err(|spent| {
            *self.spent = Some(spent);
            E::custom("the budget is spent")
        })
    }

    fn inner(&mut self) -> Paying<'_> {
        Paying { budget: self.budget, spent: self.spent }
    }
}

impl<'de> DeserializeSeed<'de> for Paying<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Paying<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<Value, E> {
        self.pay(text.len())?;
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.inner())? {
            self.pay(VALUE)?;
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        self.pay(OBJECT)?;
        let mut object = Map::new();
        while let Some(name) = entries.next_key::<Cow<'de, str>>()? {
            self.pay(ENTRY + name.len())?;
            let field = entries.next_value_seed(self.inner())?;
            object.insert(name.into_owned(), field);
        }
        Ok(Value::Object(object))
    }
}
