//! Malicious expressions, and the data that they are evaluated with. The tests of budgets, the tests of memory and the
//! benchmark use this list.

use std::sync::Arc;

use kernel::expression::Scope;
use serde_json::{Value, json};

/// What must stop an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is no expression.
    Publishing,
    /// Steps or bytes run out.
    Budget,
    /// A function does not take such arguments.
    Refused,
    /// The value is too large to be kept.
    Result,
}

/// One attack.
#[derive(Clone, Debug)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) source: String,
    pub(crate) stop: Stop,
}

/// What attacks look at: lists of 200, texts of half a megabyte.
pub(crate) fn scope() -> Scope {
    let objects: Vec<Value> = (0..200).map(|at| json!({"id": at, "text": "t".repeat(100), "more": [at, at]})).collect();
    let inputs = json!({
        "xs": (0..200).collect::<Vec<_>>(),
        "words": (0..200).map(|at| format!("word number {at}")).collect::<Vec<_>>(),
        "text": "a".repeat(1_000),
        "big": "a".repeat(500_000),
        "quotes": "\"".repeat(2_000),
        "zeros": format!("[{}0]", "0,".repeat(200_000)),
        "objects": objects,
        "hollow": vec![json!([]); 2_000],
        "empties": format!("[{}{{}}]", "{},".repeat(100_000)),
    });
    Scope { inputs: Arc::new(inputs), ..Scope::default() }
}

/// All of them.
pub(crate) fn attacks() -> Vec<Attack> {
    let attack = |name, source: String, stop| Attack { name, source, stop };
    let plain = |(name, source): (&'static str, &str), stop| attack(name, source.to_owned(), stop);
    let mut all: Vec<Attack> = BUDGET.iter().map(|one| plain(*one, Stop::Budget)).collect();
    all.extend(REFUSED.iter().map(|one| plain(*one, Stop::Refused)));
    all.extend([
        attack("string doubling", format!("['x']{}", ".map(s, s + s)".repeat(60)), Stop::Budget),
        attack("list doubling", format!("[[1]]{}", ".map(l, l + l)".repeat(60)), Stop::Budget),
        attack("object doubling", format!("[{{'k': 1}}]{}", ".map(o, {'a': o, 'b': o})".repeat(60)), Stop::Budget),
        attack("escapes of escapes", wrap("json", "inputs.quotes", 20), Stop::Budget),
        attack("encodings of encodings", wrap("urlEncode", "inputs.big + '%'", 25), Stop::Budget),
        attack("base64 of base64", wrap("base64", "inputs.big", 25), Stop::Budget),
        attack("deep lists", format!("{}1{}", "[".repeat(500), "]".repeat(500)), Stop::Publishing),
        attack("deep calls", wrap("size", "inputs.xs", 200), Stop::Publishing),
        attack("deep brackets", format!("{}1 + 1{} + 1", "(1 + ".repeat(400), ")".repeat(400)), Stop::Publishing),
        attack("brackets never closed", "(".repeat(4_000), Stop::Publishing),
        attack("deep loops", format!("{}1{}", "[1].map(x, ".repeat(60), ")".repeat(60)), Stop::Publishing),
        attack("a long chain of choices", format!("{}0", "true ? 1 : ".repeat(300)), Stop::Publishing),
        attack("a long sum", format!("1{}", " + 1".repeat(900)), Stop::Publishing),
        attack("a long way", format!("inputs{}", ".a".repeat(2_000)), Stop::Publishing),
        attack("a long way from a list", format!("[1]{}", "[0]".repeat(1_300)), Stop::Publishing),
        attack("a giant literal", format!("'{}'", "x".repeat(5_000)), Stop::Publishing),
        attack("a giant number", "9".repeat(4_000), Stop::Publishing),
        attack("a large result", "[inputs.big, inputs.big, inputs.big]".to_owned(), Stop::Result),
    ]);
    all
}

fn wrap(function: &str, inner: &str, times: usize) -> String {
    format!("{}{inner}{}", format!("{function}(").repeat(times), ")".repeat(times))
}

const BUDGET: &[(&str, &str)] = &[
    (
        "a long text to split by, again and again",
        "inputs.xs.all(x, inputs.xs.all(y, size('a'.split(inputs.big)) == 1))",
    ),
    (
        "a long text to replace, again and again",
        "inputs.xs.all(x, inputs.xs.all(y, 'a'.replace(inputs.big, 'b') == 'a'))",
    ),
    ("hollow lists, again and again", "inputs.xs.all(x, inputs.xs.all(y, size(flatten(inputs.hollow)) == 0))"),
    ("a long key, again and again", "inputs.xs.all(x, inputs.xs.all(y, !(inputs.big in {'a': 1})))"),
    ("nested comprehension", "inputs.xs.all(a, inputs.xs.all(b, inputs.xs.all(c, a + b + c >= 0)))"),
    ("nested lists", "inputs.xs.map(a, inputs.xs.map(b, inputs.xs.map(c, [a, b, c])))"),
    ("errors that are swallowed", "inputs.xs.exists(a, inputs.xs.exists(b, inputs.xs.exists(c, a + 'x' == b)))"),
    ("a way round a spent budget", "inputs.xs.all(a, inputs.xs.all(b, inputs.xs.all(c, true))) || true"),
    ("keys of keys", "inputs.xs.map(x, inputs.objects.map(o, o.keys().map(k, k + k)))"),
    ("copies of the input", "inputs.xs.map(x, inputs)"),
    ("copies in objects", "inputs.xs.map(x, {'a': inputs.big})"),
    ("growth by replace", "inputs.text.replace('a', inputs.big)"),
    ("growth by join", "inputs.xs.join(inputs.big)"),
    ("growth by split", "inputs.big.split('')"),
    ("growth by split at a letter", "inputs.big.split('a')"),
    ("growth by flatten", "inputs.xs.map(x, inputs.objects).flatten().map(x, inputs.objects).flatten()"),
    ("growth by merge", "inputs.xs.map(x, merge({'a': inputs.big}, {'b': inputs.big}))"),
    ("growth by values", "inputs.xs.map(x, inputs.values())"),
    ("growth by upper", "inputs.xs.map(x, inputs.big.upper())"),
    ("huge substrings", "inputs.xs.map(x, inputs.big.substring(x, 999999999999))"),
    ("values out of short JSON", "parseJson(inputs.zeros)"),
    ("objects out of short JSON", "parseJson(inputs.empties)"),
    ("JSON over and over", "inputs.xs.map(x, parseJson(inputs.quotes.json()) + json(inputs.objects))"),
    ("patterns on long texts", "inputs.words.map(w, inputs.big.matches('(a*)*b'))"),
    ("many patterns", "inputs.xs.map(x, 'a'.matches('[a-z]{1,9}' + string(x)))"),
    ("a pattern of too many states", "inputs.words.map(w, inputs.big.matches('(?:a?){250}a{250}'))"),
    ("searching long texts", "inputs.xs.all(x, inputs.xs.all(y, !inputs.big.contains('b')))"),
    ("hashing long texts", "inputs.xs.all(x, sha256(inputs.big) != '')"),
    ("sorting over and over", "inputs.xs.all(x, sort(inputs.words + inputs.words) != null)"),
    ("unlike objects", "inputs.xs.all(x, unique(inputs.objects) != null)"),
    ("comparing long lists", "inputs.xs.all(x, inputs.objects == inputs.objects)"),
    ("looking in long lists", "inputs.xs.all(x, inputs.xs.all(y, !(-1 in inputs.xs)))"),
    ("lengths of long texts", "inputs.xs.all(x, inputs.xs.all(y, size(inputs.big) > 0))"),
    ("many dates", "inputs.xs.all(x, inputs.xs.all(y, formatDate(0, '%255Y') != ''))"),
    ("sums of sums", "inputs.xs.all(x, inputs.xs.all(y, sum(inputs.xs) + max(inputs.xs) > 0))"),
];

const REFUSED: &[(&str, &str)] = &[
    ("a pattern that explodes", "'a'.matches('(((a{90}){90}){90}){90}')"),
    ("a pattern of all letters", r"'a'.matches('\\w{200}\\W{200}')"),
    ("a long pattern", "'a'.matches(inputs.text)"),
    ("a long format", "formatDate(0, inputs.text)"),
];
