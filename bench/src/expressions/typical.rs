//! Typical expressions, and a template full of them.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow};
use cel::objects::{Key, Map};
use cel::{Context, Program};
use kernel::expression::template::Template;
use kernel::expression::{Expression, NodeScope, Scope};
use kernel::ids::NodeKey;
use serde_json::{Value, json};

use crate::report::say;

const SOURCES: [&str; 6] = [
    "inputs.order.id",
    "inputs.total > 1000 && nodes.fetch.output.status == 'ok'",
    "nodes.fetch.output.items.filter(i, i.price * i.count > 10).map(i, i.name)",
    "inputs.customer.vip ? 'fast' : 'slow'",
    "'Order ' + inputs.order.id + ' for ' + inputs.customer.name",
    "nodes.fetch.output.items.exists(i, i.name == 'item 19')",
];

/// The average cost of one expression, in microseconds.
pub(super) struct Typical {
    pub(super) ours_us: f64,
    pub(super) crate_us: f64,
    pub(super) ours_parse_us: f64,
    pub(super) crate_parse_us: f64,
    /// Parsing and resolving a whole template.
    pub(super) template_us: f64,
}

pub(super) fn measure(scale: f64) -> Result<Typical> {
    let rounds = ((20_000.0 * scale) as usize).max(200);
    let (inputs, output) = data();
    let scope = scope(&inputs, &output)?;
    let mut context = Context::default();
    context.add_variable_from_value("inputs", theirs(&inputs));
    context.add_variable_from_value("nodes", theirs(&json!({"fetch": {"output": output}})));
    let mut typical =
        Typical { ours_us: 0.0, crate_us: 0.0, ours_parse_us: 0.0, crate_parse_us: 0.0, template_us: 0.0 };
    let share = SOURCES.len() as f64;
    for source in SOURCES {
        let expression = Expression::parse(source)?;
        let program = Program::compile(source).map_err(|error| anyhow!("{error}"))?;
        let same = program.execute(&context).map_err(|error| anyhow!("{error}"))?;
        if theirs(&expression.eval(&scope)?) != same {
            return Err(anyhow!("the two interpreters differ on {source}"));
        }
        let ours = time(rounds, || drop(black_box(expression.view(&scope))));
        let cel = time(rounds, || drop(black_box(program.execute(&context))));
        say(format_args!("{ours:>8.2} us, the crate {cel:>8.2} us  {source}"));
        typical.ours_us += ours / share;
        typical.crate_us += cel / share;
        typical.ours_parse_us += time(rounds / 20, || drop(black_box(Expression::parse(source)))) / share;
        typical.crate_parse_us += time(rounds / 20, || drop(black_box(Program::compile(source)))) / share;
    }
    let heavy = template();
    typical.template_us =
        time(rounds / 20, || drop(black_box(Template::parse(&heavy).map(|template| template.resolve(&scope)))));
    Ok(typical)
}

fn data() -> (Value, Value) {
    let items: Vec<Value> = (0..20)
        .map(|at| json!({"name": format!("item {at}"), "price": at, "count": at % 3, "note": "as ordered"}))
        .collect();
    let inputs = json!({"order": {"id": "A1"}, "total": 1200, "customer": {"name": "Ann", "vip": true}});
    (inputs, json!({"status": "ok", "items": items}))
}

fn scope(inputs: &Value, output: &Value) -> Result<Scope> {
    let fetch = NodeScope { status: "COMPLETED".to_owned(), output: Arc::new(output.clone()), error: Arc::default() };
    let nodes = [(NodeKey::new("fetch")?, fetch)].into();
    Ok(Scope { inputs: Arc::new(inputs.clone()), nodes, ..Scope::default() })
}

/// A typical request of a report.
fn template() -> Value {
    json!({
        "url": "https://example.test/orders/${{ inputs.order.id }}?customer=${{ urlEncode(inputs.customer.name) }}",
        "headers": {"idempotency-key": "${{ sha256(inputs.order.id) }}", "accept": "application/json"},
        "body": {
            "order": "${{ inputs.order }}",
            "lines": "${{ nodes.fetch.output.items.map(i, {'name': i.name, 'sum': i.price * i.count}) }}",
            "sum": "${{ sum(nodes.fetch.output.items.map(i, i.price * i.count)) }}",
            "text": "Dear ${{ inputs.customer.name }}, your order ${{ inputs.order.id }} is ${{ inputs.total > 1000 ? \
                'large' : 'small' }}.",
        },
    })
}

/// The mean time of a call, in microseconds.
fn time(rounds: usize, mut call: impl FnMut()) -> f64 {
    (0..rounds / 10).for_each(|_| call());
    let start = Instant::now();
    (0..rounds).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1_000_000.0 / rounds.max(1) as f64
}

/// Converts to the values of the crate `cel`. Whole numbers are signed, like literals of that crate.
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
