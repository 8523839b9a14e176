//! Compares the results of expressions with the interpreter of the crate that parses them, and tests arbitrary texts.

use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Context, Program};
use kernel::expression::{Budget, Expression, MAX_BYTES, MAX_STEPS, Scope};
use proptest::prelude::*;
use serde_json::{Value, json};

fn data() -> Value {
    json!({
        "a": 7, "b": -3, "c": 0, "s": "hello", "t": "lo", "p": true, "q": false,
        "xs": [3, 1, 2], "none": [], "m": {"k": 1, "l": 2}, "os": [{"n": 1}, {"n": 5}],
    })
}

/// The crate's own values; whole numbers are signed, as its literals are.
fn theirs(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => cel::Value::Int(whole),
            None => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(theirs).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| (Key::String(Arc::new(name.clone())), theirs(field)));
            cel::Value::Map(Map { map: Arc::new(fields.collect()) })
        }
    }
}

/// What each makes of a source; nothing for an error.
fn both(source: &str) -> (Option<Value>, Option<cel::Value>) {
    let scope = Scope { inputs: Arc::new(data()), ..Scope::default() };
    let ours = Expression::parse(source).unwrap_or_else(|error| panic!("{source}: {error}")).eval(&scope);
    let mut context = Context::default();
    context.add_variable_from_value("inputs", theirs(&data()));
    let program = Program::compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    (ours.ok(), program.execute(&context).ok())
}

/// The crate's parser takes much stack.
fn with_room(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 << 20).spawn(run).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[derive(Clone, Debug)]
struct Sources {
    int: BoxedStrategy<String>,
    text: BoxedStrategy<String>,
    truth: BoxedStrategy<String>,
    list: BoxedStrategy<String>,
}

fn leaves() -> Sources {
    let pick = |texts: &'static [&'static str]| prop::sample::select(texts).prop_map(str::to_owned).boxed();
    Sources {
        int: prop_oneof![
            pick(&["inputs.a", "inputs.b", "inputs.c", "inputs.m.k", "inputs.m['l']"]),
            (-9..9_i64).prop_map(|n| n.to_string())
        ]
        .boxed(),
        text: pick(&["inputs.s", "inputs.t", "''", "'l'", "'hello'", r#""o\n""#]),
        truth: pick(&["inputs.p", "inputs.q", "true", "false", "has(inputs.m.k)", "has(inputs.m.z)"]),
        list: pick(&["inputs.xs", "inputs.none", "[1, 2]", "[]", "inputs.os.map(o, o.n)"]),
    }
}

fn deeper(of: &Sources) -> Sources {
    let Sources { int, text, truth, list } = of.clone();
    let binary = |ops: &'static [&'static str], left: &BoxedStrategy<String>, right: &BoxedStrategy<String>| {
        let parts = (prop::sample::select(ops), left.clone(), right.clone());
        parts.prop_map(|(op, left, right)| format!("({left} {op} {right})")).boxed()
    };
    let choice = |of: &BoxedStrategy<String>| {
        (truth.clone(), of.clone(), of.clone()).prop_map(|(test, a, b)| format!("({test} ? {a} : {b})")).boxed()
    };
    Sources {
        int: prop_oneof![
            int.clone(),
            binary(&["+", "-", "*", "/", "%"], &int, &int),
            choice(&int),
            int.clone().prop_map(|of| format!("-({of})")),
            text.clone().prop_map(|of| format!("size({of})")),
            list.clone().prop_map(|of| format!("size({of})")),
        ]
        .boxed(),
        text: prop_oneof![text.clone(), binary(&["+"], &text, &text), choice(&text)].boxed(),
        truth: prop_oneof![
            truth.clone(),
            binary(&["&&", "||", "=="], &truth, &truth),
            binary(&["==", "!=", "<", "<=", ">", ">="], &int, &int),
            binary(&["==", "!=", "<", ">="], &text, &text),
            binary(&["==", "!="], &list, &list),
            binary(&["in"], &int, &list),
            truth.clone().prop_map(|of| format!("!({of})")),
            (text.clone(), text.clone()).prop_map(|(a, b)| format!("{a}.contains({b})")),
            (text.clone(), text.clone()).prop_map(|(a, b)| format!("{a}.startsWith({b})")),
            (prop::sample::select(&["all", "exists", "exists_one"][..]), list.clone(), int.clone())
                .prop_map(|(name, list, int)| format!("{list}.{name}(x, x > {int})")),
        ]
        .boxed(),
        list: prop_oneof![
            list.clone(),
            binary(&["+"], &list, &list),
            choice(&list),
            (list.clone(), int.clone()).prop_map(|(list, int)| format!("{list}.map(y, y * 2 - {int})")),
            (list.clone(), int.clone()).prop_map(|(list, int)| format!("{list}.filter(y, y != {int})")),
            (list.clone(), int.clone()).prop_map(|(list, int)| format!("{list}.map(y, y > {int}, y + 1)")),
            prop::collection::vec(int, 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
        ]
        .boxed(),
    }
}

#[test]
fn what_both_understand_means_the_same_as_in_the_parsers_own_interpreter() {
    with_room(|| {
        let sources = deeper(&deeper(&leaves()));
        let any = prop_oneof![sources.int, sources.text, sources.truth, sources.list];
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(400)
        });
        let ran = runner.run(&any, |source| {
            let (ours, cels) = both(&source);
            prop_assert_eq!(ours.as_ref().map(theirs), cels, "{}", source);
            Ok(())
        });
        ran.unwrap_or_else(|error| panic!("{error}"));
    });
}

/// Anything that looks like an expression, most of it broken.
const PIECES: &str = r#"(inputs|nodes\.a\.output|secrets|vars|\.a|\.map\(x, |\.all\(x,|x|\[|\]|\(|\)|\{|\}|:|,|"|'|r'|\\|u00|é|-|1|9223372036854775808|0x|1e9|!|==|<|&&|\|\|| in |\?|size\(|json\(|matches\(|parseDate\(|\+|/|%| |\x00|\n|//){0,24}"#;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn no_text_makes_it_panic_or_take_more_than_its_budget(source in PIECES) {
        if let Ok(expression) = Expression::parse(&source) {
            let scope = Scope { inputs: Arc::new(data()), ..Scope::default() };
            let mut budget = Budget::default();
            let value = expression.eval_within(&scope, &mut budget);
            prop_assert!(budget.steps_used() <= MAX_STEPS && budget.bytes_used() <= MAX_BYTES);
            if let Err(error) = value {
                prop_assert!(error.offset().is_none_or(|at| at <= expression.source().len()));
            }
        }
    }

    #[test]
    fn whatever_text_comes_is_read_or_refused_with_a_place_inside_it(source in any::<String>()) {
        if let Err(error) = Expression::parse(&source) {
            prop_assert!(error.offset <= source.len() && source.is_char_boundary(error.offset));
        }
    }
}

#[test]
fn the_deepest_that_is_accepted_needs_little_stack() {
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(|| {
        let scope = Scope { inputs: Arc::new(data()), ..Scope::default() };
        let deep = [
            format!("1{}", " + 1".repeat(98)),
            format!("{}1{}", "[".repeat(32), "]".repeat(32)),
            format!("{}inputs.xs{}", "size([".repeat(15), "])".repeat(15)),
            format!("{}1{}", "[1].map(x, ".repeat(30), ")".repeat(30)),
            format!("{}0", "false ? 1 : ".repeat(98)),
            format!("inputs{}", ".none".repeat(64)),
            "1+".repeat(2_047) + "1",
            "inputs".to_owned() + &"[0]".repeat(1_300),
            "[".repeat(4_096),
            "!".repeat(4_095) + "a",
            "-".repeat(4_095) + "1",
            "a?b:".repeat(1_023) + "c",
        ];
        for source in deep {
            if let Ok(expression) = Expression::parse(&source) {
                drop(expression.eval(&scope));
            }
        }
        assert!(Expression::parse(&format!("1{}", " + 1".repeat(98))).is_ok(), "the deepest is accepted");
    });
    thread.expect("a thread").join().expect("no overflow");
}
